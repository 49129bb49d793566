"""How fast replay runs, and that its cost is linear in the trace: a table.

    python benchmarks/bench_replay.py ../shared/traces/mooncake_conversation.jsonl

One process, one core. Parsing is left out; each row replays the first part of the trace afresh.
"""

from pathlib import Path
from time import process_time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.metrics import summarise
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace

PAGE_TOKENS = 16
STATE_FRACTION = 0.3
CHECKPOINTS = ("prompt_end", {"name": "every", "tokens": 4096}, "prompt_end+branch", "all_blocks")


def make_cache(checkpoint: object, model_name: str, memory_gib: float) -> RadixCache:
    model = get_model(model_name)
    memory_bytes = int(memory_gib * 2**30)
    page_bytes = model.kv_bytes_per_token * PAGE_TOKENS
    num_slots = int(memory_bytes * STATE_FRACTION) // model.state_bytes
    num_pages = int(memory_bytes * (1 - STATE_FRACTION)) // page_bytes
    memory = Memory(page_bytes, model.state_bytes, num_pages, num_slots)
    return RadixCache(memory, PAGE_TOKENS, make_checkpoint(checkpoint), make_eviction("lru"))


def main(
    path: Path,
    format: Annotated[str, typer.Option(help="Trace format.")] = "mooncake",
    model: Annotated[str, typer.Option(help="Catalogue name.")] = "qwen3.5-0.8b",
    memory_gib: Annotated[float, typer.Option(help="KV and states together.")] = 16,
) -> None:
    """Print CPU seconds for parts of the trace and for each checkpoint policy."""
    requests = read_trace(path, format).requests
    table = Table(title=f"replay of {path.name}, {model}, {memory_gib:g} GiB")
    for column in ("checkpoint", "requests", "CPU s", "us/request", "hit %", "states evicted"):
        table.add_column(column, justify="right")
    for checkpoint in CHECKPOINTS:
        for part in (1 / 8, 1 / 4, 1 / 2, 1):
            kept = requests[: int(len(requests) * part)]
            start_s = process_time()
            records = replay(kept, make_cache(checkpoint, model, memory_gib))
            cpu_s = process_time() - start_s
            rates = summarise(records)
            table.add_row(
                str(checkpoint),
                str(len(kept)),
                f"{cpu_s:.2f}",
                f"{1e6 * cpu_s / len(kept):.0f}",
                f"{100 * rates['token_hit_rate']:.2f}",
                f"{rates['num_evicted_states']:.0f}",
            )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
