"""How far one-pass curves are from the cache's own replay: writes results/curves/refresh.csv.

python benchmarks/compare_refresh.py --shared ../shared
Shared pool, eviction lru, all requests counted, token hit rate in %. A column for each refresh rule
of `hybridsim.analysis.curve`, and `replay`: exact, by `hybridsim.analysis.lockstep`.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

from make_bounds import chat

from hybridsim.analysis.curve import REFRESHES, CacheRules, lru_curve
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.analysis.passes import cached_trie
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint
from hybridsim.request import Request
from hybridsim.traces import read_trace

GB, GIB = 10**9, 2**30
COLUMNS = ("trace", "model", "checkpoint", "page_tokens", "memory_bytes", *REFRESHES, "replay")


def rows(
    name: str, requests: list[Request], model_name: str, named: str, page: int, sizes: list[int]
) -> Iterator[list[object]]:
    """A row a size."""
    model = get_model(model_name)
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, page, running_states=1)
    trie = cached_trie(requests, outputs=True)
    lines = [
        lru_curve(requests, rules, make_checkpoint(named), refresh=refresh, trie=trie)
        for refresh in REFRESHES
    ]
    grid = lru_grid(
        requests, rules, lambda: make_checkpoint(named), [Capacity(size) for size in sizes],
        trie=trie,
    ).token_hit_rate()  # fmt: skip
    for size, replayed in zip(sizes, grid.tolist(), strict=True):
        rates = [float(line.token_hit_rate([size])[0]) for line in lines]
        percents = [f"{100 * rate:.2f}" for rate in (*rates, replayed)]
        print(name, named, size, *percents, flush=True)
        yield [name, model_name, named, page, size, *percents]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("..") / "shared")
    shared = parser.parse_args().shared
    traces = shared / "traces"
    powers = [GIB << power for power in range(8)]
    conversation = read_trace(traces / "mooncake_conversation.jsonl", "mooncake").requests
    found = list(rows("conversation", conversation, "qwen3.5-0.8b", "prompt_end", 16, powers))
    chats = chat(shared)
    found += rows("chat", chats, "marconi-7b", "turn_end", 1, [n * GB for n in (2, 5, 10, 20)])
    weka = read_trace(traces / "weka_cc_traces_710.jsonl.xz", "weka").requests
    found += rows("weka", weka, "qwen3.5-0.8b", "prompt_end", 64, powers)
    out = Path(__file__).resolve().parent.parent / "results" / "curves" / "refresh.csv"
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *found])


if __name__ == "__main__":
    main()
