"""What a victim costs under each eviction policy where thousands of states are saved: a table.

    python benchmarks/bench_victims.py ../shared/traces/mooncake_conversation.jsonl --first 500
    python benchmarks/bench_victims.py ../shared/traces/weka_cc_traces_710.jsonl.xz \
        --format weka --first 100

One process, one core. Parsing is left out. States are saved at every block of the trace, in a
split pool of which they have 30 %.
"""

from pathlib import Path
from time import process_time
from typing import Annotated, Any

import typer
from bench_replay import PAGE_TOKENS, STATE_FRACTION
from rich.console import Console
from rich.table import Table

from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.models import get_model
from hybridsim.policies import EVICTION, make_checkpoint, make_eviction
from hybridsim.request import Request
from hybridsim.sim.replay import replay
from hybridsim.sim.setting import setting_for
from hybridsim.traces import read_trace

OPTIONS: dict[str, dict[str, Any]] = {"tlru": {"threshold_tokens": 8192}}


def prepared_cache(
    requests: list[Request], checkpoint: str, eviction: str, model_name: str, memory_gib: float
) -> RadixCache:
    model = get_model(model_name)
    memory_bytes = int(memory_gib * 2**30)
    state_bytes = int(memory_bytes * STATE_FRACTION)
    page_bytes = model.kv_bytes_per_token * PAGE_TOKENS
    num_pages = (memory_bytes - state_bytes) // page_bytes
    memory = Memory(page_bytes, model.state_bytes, num_pages, state_bytes // model.state_bytes)
    policy = make_eviction({"name": eviction, **OPTIONS.get(eviction, {})})
    cache = RadixCache(memory, PAGE_TOKENS, make_checkpoint(checkpoint), policy)
    cache.prepare(setting_for(requests, model, seed=0))
    return cache


def main(
    path: Path,
    format: Annotated[str, typer.Option(help="Trace format.")] = "mooncake",
    first: Annotated[int | None, typer.Option(help="Read only so many requests.")] = None,
    model: Annotated[str, typer.Option(help="Catalogue name.")] = "qwen3.5-0.8b",
    memory_gib: Annotated[float, typer.Option(help="KV and states together.")] = 32,
    checkpoint: Annotated[str, typer.Option(help="Checkpoint policy.")] = "all_blocks",
) -> None:
    """Print CPU seconds, states evicted and microseconds for each of them, for each policy."""
    options = {"infer_sessions": True} if format == "mooncake" else {}  # session_end wants them
    requests = read_trace(path, format, first=first, options=options).requests
    table = Table(title=f"{checkpoint} on {path.name}, {model}, {memory_gib:g} GiB")
    for column in ("eviction", "CPU s", "states evicted", "us/state"):
        table.add_column(column, justify="right")
    for eviction in EVICTION:
        cache = prepared_cache(requests, checkpoint, eviction, model, memory_gib)
        start_s = process_time()
        records = replay(requests, cache)
        cpu_s = process_time() - start_s
        num_states = sum(record.num_evicted_states for record in records)
        us = 1e6 * cpu_s / max(num_states, 1)
        table.add_row(eviction, f"{cpu_s:.2f}", str(num_states), f"{us:.0f}")
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
