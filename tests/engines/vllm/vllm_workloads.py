"""Small workloads in named segments, and engines to run them on."""

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from hybridsim.engines.vllm import VLLMEngine, VLLMOptions, build_layout, geometry_of
from hybridsim.models import get_model
from hybridsim.request import Request, Spans

Segments = list[tuple[str, int]]


def spans(segments: Iterable[tuple[str, int]]) -> Spans:
    """Equal names are equal tokens."""
    return Spans.of([(crc32(name.encode()), length) for name, length in segments])


def request(name: str, prompt: Segments, output: int | Segments = 1) -> Request:
    """A request; an output given as a number has content of its own."""
    generated = [(f"output of {name}", output)] if isinstance(output, int) else output
    return Request(name, spans(prompt), spans(generated))


def engine(
    num_blocks: int = 200, model: str = "qwen3.5-0.8b", memory: int = 0, **options: Any
) -> VLLMEngine:
    """A fresh engine for a catalogue model; a pool of `memory` bytes where that is given."""
    chosen = VLLMOptions(**options)
    layout = build_layout(geometry_of(get_model(model), chosen), chosen)
    return VLLMEngine(chosen, layout, layout.num_blocks(memory) if memory else num_blocks)


def hits(served_by: VLLMEngine, requests: Iterable[Request]) -> list[int | None]:
    """Hit of every request, None for one that was refused; the engine's laws hold afterwards."""
    found: list[int | None] = []
    for each in requests:
        record = served_by.serve(each)
        found.append(None if record.miss_reason == "refused" else record.num_hit_tokens)
    served_by.check()
    return found


def repeated(length: int, times: int = 3, output: int = 4) -> list[Request]:
    return [request(f"r{i}", [("a", length)], output) for i in range(times)]


def multi_turn() -> list[Request]:
    """1500 tokens, then 300 more a turn, 200 tokens generated in each."""
    turns, prompt = [], [("u1", 1500)]
    for turn in range(1, 5):
        output = [(f"o{turn}", 200)]
        turns.append(request(f"t{turn}", list(prompt), output))
        prompt += [*output, (f"u{turn + 1}", 300)]
    return turns


def shared_head(shared: int = 1500, unique: int = 700, times: int = 4) -> list[Request]:
    return [request(f"s{i}", [("sys", shared), (f"x{i}", unique)], output=4) for i in range(times)]
