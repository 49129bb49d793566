"""How long whole LRU curves take, how that grows with the trace, and what a rival takes.

python benchmarks/bench_curve.py --shared ../shared --rival path/to/kvcache-simulator
The rival is kvcache-simulator 0.1.3 from PyPI in an environment of its own. It is run twice, since
its first run compiles. All times are CPU seconds of one process; the least of three where short.
"""

import argparse
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hybridsim.analysis.blocks import block_curve, block_tree
from hybridsim.analysis.bound import bracket
from hybridsim.analysis.curve import REFRESHES, CacheRules, lru_curve, lru_surface
from hybridsim.analysis.interval import BoundRules, interval_problem
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.analysis.passes import cached_trie
from hybridsim.cache.pools import SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.request import Request
from hybridsim.sim.grid import MakePolicies, policy_grid
from hybridsim.sim.replay import replay
from hybridsim.sim.setting import setting_for
from hybridsim.traces import read_trace

BLOCKS = [1024 << power for power in range(7)]
SIZES = [2**30 << power for power in range(8)]
# qwen3.5-27b keeps 65,536 B of KV a token, so that 1024 blocks of 512 tokens are 32 GiB.
RIVAL_MODEL, RIVAL_BLOCK_GIB = "qwen3.5-27b", 512 * 65536 / 2**30


def timed(action: Callable[[], Any], repeat: int = 1) -> tuple[Any, float]:
    """The result and the least CPU seconds of `repeat` calls."""
    best = float("inf")
    for _ in range(repeat):
        start_s = time.process_time()
        result = action()
        best = min(best, time.process_time() - start_s)
    return result, best


def show(what: str, seconds: float, note: str = "") -> None:
    print(f"{what:58s} {seconds:9.3f} s  {note}", flush=True)


def bench_trace(name: str, requests: list[Request], page_tokens: int, repeat: int) -> None:
    """Every analysis of one trace."""
    model = get_model("qwen3.5-0.8b")
    num_tokens = sum(request.num_prompt_tokens for request in requests)
    trie, seconds = timed(lambda: cached_trie(requests, outputs=True))
    show(f"{name}: trie", seconds, f"{len(requests)} requests, {num_tokens / 1e6:.1f} M tokens")
    hybrid = CacheRules(model.kv_bytes_per_token, model.state_bytes, page_tokens)
    attention = CacheRules(model.kv_bytes_per_token, 0, page_tokens)
    policy = make_checkpoint("prompt_end")
    curve, seconds = timed(lambda: lru_curve(requests, attention, policy, trie=trie), repeat)
    show(f"{name}: whole curve, attention only", seconds, f"ceiling {curve.ceiling:.5f}")
    for refresh in REFRESHES:
        curve, seconds = timed(
            lambda refresh=refresh: lru_curve(requests, hybrid, policy, refresh=refresh, trie=trie),
            repeat,
        )
        show(f"{name}: whole curve, shared, prompt_end, refresh {refresh}", seconds)
    every_block = make_checkpoint("all_blocks")
    curve, seconds = timed(lambda: lru_curve(requests, hybrid, every_block, trie=trie), repeat)
    show(f"{name}: whole curve, shared, all_blocks", seconds, f"ceiling {curve.ceiling:.5f}")
    _, seconds = timed(lambda: curve.token_hit_rate(SIZES), repeat)
    show(f"{name}: reading 8 points off it", seconds)
    _, seconds = timed(lambda: lru_surface(requests, hybrid, policy, trie=trie), repeat)
    show(f"{name}: whole surface (KV, states), prompt_end", seconds)
    grid = [Capacity(size) for size in SIZES]
    _, seconds = timed(
        lambda: lru_grid(requests, hybrid, lambda: make_checkpoint("prompt_end"), grid, trie=trie)
    )
    show(f"{name}: exact replay at 8 sizes, prompt_end", seconds)
    rules = BoundRules(model.kv_bytes_per_token, model.state_bytes, page_tokens)
    problem, seconds = timed(lambda: interval_problem(requests, rules))
    show(f"{name}: interval problem of the bound", seconds, f"{len(problem.request)} runs")
    found, seconds = timed(lambda: bracket(problem, SIZES[3]))
    show(f"{name}: bracket at 8 GiB", seconds, f"{found.lower:.5f} .. {found.upper:.5f}")


GRID_EVICTIONS = ("lru", {"name": "lru", "refresh": "consumed"}, "lfu", "gdsf")


def bench_grid(name: str, requests: list[Request], page_tokens: int) -> None:
    """The grid over one trie beside the research cache, run once a size; hits must be equal."""
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, page_tokens)
    for eviction in GRID_EVICTIONS:
        make = MakePolicies(
            lambda: make_checkpoint("prompt_end"),
            lambda eviction=eviction: make_eviction(eviction),
            setting=lambda: setting_for(requests, model, 0, shared=True),
        )
        grid, grid_s = timed(
            lambda make=make: policy_grid(requests, rules, make, [Capacity(s) for s in SIZES])
        )
        hits, single_s = timed(lambda make=make: [_hits(requests, rules, make, s) for s in SIZES])
        assert grid.hit_tokens.sum(axis=1).tolist() == hits
        label = f"{name}: grid of 8 sizes with its trie, {eviction}"
        show(label, grid_s, f"one by one {single_s:.2f} s, {single_s / grid_s:.2f} times as long")


def _hits(requests: list[Request], rules: CacheRules, make: MakePolicies, size_bytes: int) -> int:
    page_bytes = rules.kv_bytes_per_token * rules.page_tokens
    memory = SharedMemory(page_bytes, rules.state_bytes, size_bytes)
    cache = RadixCache(memory, rules.page_tokens, make.checkpoint(), make.eviction())
    assert make.setting is not None
    cache.prepare(make.setting())
    return sum(record.num_hit_tokens for record in replay(requests, cache))


def bench_growth(requests: list[Request]) -> None:
    """The hybrid curve over growing beginnings of a trace: time must grow as the trace does."""
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, 64)
    policy = make_checkpoint("prompt_end")
    print("requests   M tokens   curve s   us a request")
    for count in (2500, 5000, 10000, 20000, 40000):
        part = requests[:count]
        trie = cached_trie(part, outputs=True)
        _, seconds = timed(
            lambda part=part, trie=trie: lru_curve(part, rules, policy, trie=trie), 3
        )
        tokens = sum(request.num_prompt_tokens for request in part) / 1e6
        print(f"{count:8d} {tokens:10.1f} {seconds:9.3f} {seconds / count * 1e6:14.1f}", flush=True)


def bench_rival(rival: Path, trace: Path, requests: list[Request]) -> None:
    """Block LRU at seven sizes: the rival's run from file to table, beside ours."""
    budgets = ",".join(f"{blocks * RIVAL_BLOCK_GIB:g}" for blocks in BLOCKS)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rival.json"
        command = [
            str(rival), "run", "--trace", str(trace), "--model", RIVAL_MODEL, "--block-size", "512",
            "--kv-precision", "bf16_fp16", "--budgets-gib", budgets, "--policies", "lru",
            "--format", "json", "--output", str(out), "--no-progress",
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        table = json.loads(out.read_text())
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    show("kvcache-simulator 0.1.3: file to LRU at 7 sizes", used, "the rival")
    print("rival:", json.dumps(table)[:2000])
    _, parse_s = timed(lambda: read_trace(trace, "mooncake"))
    _, tree_s = timed(lambda: block_tree(requests))
    curve, all_s = timed(lambda: block_curve(requests, num_warmup=len(requests) // 2), 3)
    show("hybridsim: reading and checking the file", parse_s)
    show("hybridsim: trie of blocks", tree_s)
    show("hybridsim: trie and whole block curve", all_s, "every size, exact")
    print("ours:", [round(float(rate), 5) for rate in curve.token_hit_rate(BLOCKS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("..") / "shared")
    parser.add_argument("--rival", type=Path, default=None)
    parser.add_argument("--no-weka", action="store_true")
    options = parser.parse_args()
    traces = options.shared / "traces"
    conversation = traces / "mooncake_conversation.jsonl"
    requests = read_trace(conversation, "mooncake").requests
    if options.rival is not None:
        bench_rival(options.rival, conversation, requests)
    bench_trace("conversation", requests, 16, 3)
    bench_grid("conversation", requests, 16)
    if not options.no_weka:
        weka = read_trace(traces / "weka_cc_traces_710.jsonl.xz", "weka").requests
        bench_trace("weka", weka, 64, 1)
        bench_growth(weka)


if __name__ == "__main__":
    main()
