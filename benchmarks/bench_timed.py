"""How fast timed mode runs: one trace, several loads and memories, a table.

    python benchmarks/bench_timed.py ../shared/traces/mooncake_conversation.jsonl

Parsing is not part of the run's time. Each row is one run in one process on one core.
"""

from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hybridsim.cache.null_cache import NullCache
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.cost import get_cost_model
from hybridsim.metrics import summarise
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.request import Request
from hybridsim.sim.engine import simulate
from hybridsim.sim.options import SchedulerOptions
from hybridsim.traces import read_trace

PAGE_TOKENS = 16
STATE_FRACTION = 0.3
COLUMNS = (
    "memory GiB", "checkpoint", "rate x", "CPU s", "requests/s", "events", "steps", "hit %",
    "ttft p50 s", "tpot p50 ms", "preempted",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One row. `checkpoint` None keeps nothing at all."""

    memory_gib: float
    checkpoint: str | None
    rate_scale: float = 1.0
    max_num_seqs: int = 256


CASES = (
    Case(32, "prompt_end"),
    Case(8, "prompt_end"),
    Case(32, None),
    Case(64, "prompt_end", rate_scale=4),
    Case(32, "prompt_end", rate_scale=16),
)


def make_cache(case: Case, model_name: str) -> RadixCache | NullCache:
    model = get_model(model_name)
    memory_bytes = int(case.memory_gib * 2**30)
    page_bytes = model.kv_bytes_per_token * PAGE_TOKENS
    num_slots = int(memory_bytes * STATE_FRACTION) // model.state_bytes
    num_pages = int(memory_bytes * (1 - STATE_FRACTION)) // page_bytes
    if case.checkpoint is None:
        return NullCache(PAGE_TOKENS, num_pages, num_slots, page_bytes, model.state_bytes)
    memory = Memory(page_bytes, model.state_bytes, num_pages, num_slots)
    return RadixCache(memory, PAGE_TOKENS, make_checkpoint(case.checkpoint), make_eviction("lru"))


def run(case: Case, requests: list[Request], model_name: str, gpu: str) -> list[str]:
    cost = get_cost_model(gpu, get_model(model_name))
    cache = make_cache(case, model_name)
    options = SchedulerOptions(max_num_seqs=case.max_num_seqs)
    start_s = process_time()
    result = simulate(requests, cache, cost, options, rate_scale=case.rate_scale)
    run_s = process_time() - start_s
    metrics = summarise(result.records, result.steps)
    return [
        f"{case.memory_gib:g}",
        case.checkpoint or "no cache",
        f"{case.rate_scale:g}",
        f"{run_s:.2f}",
        f"{len(requests) / run_s:,.0f}",
        f"{len(result.steps):,}",
        f"{metrics['num_steps']:,.0f}",
        f"{100 * metrics['token_hit_rate']:.2f}",
        f"{metrics['ttft_s_p50']:.3f}",
        f"{1000 * metrics['tpot_s_p50']:.2f}",
        f"{metrics['num_preemptions']:,.0f}",
    ]


def main(
    trace: Annotated[Path, typer.Argument(help="a trace file")],
    format: Annotated[str, typer.Option(help="its format")] = "mooncake",
    model: Annotated[str, typer.Option(help="a model of the catalogue")] = "qwen3.5-0.8b",
    gpu: Annotated[str, typer.Option(help="a GPU with known rates")] = "h200",
    first: Annotated[int | None, typer.Option(help="only so many requests")] = None,
) -> None:
    """Run every case and print the table."""
    requests = read_trace(str(trace), format, first=first).requests
    table = Table(*COLUMNS, title=f"{trace.name}, {len(requests):,} requests, {model} on {gpu}")
    for case in CASES:
        table.add_row(*run(case, requests, model, gpu))
    Console(width=120).print(table)


if __name__ == "__main__":
    typer.run(main)
