"""Scenarios in segments for tests: `[("sys", 1500), ("u1", 700)]`, as in the acceptance cases."""

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from hybridsim.engines.sglang.decision import Decision
from hybridsim.engines.sglang.engine import SGLangEngine
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.request import Request, Spans

Segments = Iterable[tuple[str, int]]
AMPLE = {"kv_tokens": 4_000_000, "state_slots": 20_000}


def request(name: str, prompt: Segments, output: int | Segments = 1) -> Request:
    """Equal segment names are equal tokens; a number as output is that many unknown tokens."""
    tail = Spans.unknown(output) if isinstance(output, int) else _spans(output)
    return Request(name, _spans(prompt), tail)


def _spans(segments: Segments) -> Spans:
    return Spans.of([(crc32(name.encode()), length) for name, length in segments])


def engine(**options: Any) -> SGLangEngine:
    return SGLangEngine(SGLangOptions(**{**AMPLE, **options}))


def play(server: SGLangEngine, requests: Iterable[Request]) -> list[Decision]:
    """All decisions; the laws are checked after every request."""
    decisions = []
    for one in requests:
        server.serve(one)
        assert server.last_decision is not None
        decisions.append(server.last_decision)
        server.check()
    return decisions


def hits(server: SGLangEngine, requests: Iterable[Request]) -> list[int]:
    return [decision.num_hit_tokens for decision in play(server, requests)]


def of_case(rows: list[dict[str, Any]]) -> list[Request]:
    """Requests of an acceptance case; `repeat` makes numbered copies (`doc_i` counts up)."""
    made = []
    for row in rows:
        for index in range(row.get("repeat", 1)):
            prompt = [(name.replace("_i", f"_{index}"), length) for name, length in row["prompt"]]
            made.append(request(f"{row['id']}{index}", prompt, row["output"]))
    return made
