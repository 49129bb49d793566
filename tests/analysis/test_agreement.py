"""Where the one-pass curve and the research cache must agree, and how far apart they are else."""

from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hybridsim.analysis.curve import CacheRules, lru_curve
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.cache.pools import SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.request import Spans
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace
from tests.analysis.workloads import cached_tokens, traces


@dataclass(frozen=True)
class NamedSoFar:
    """Saves wherever on its path this or an earlier request ended: the curve's own assumption."""

    positions_of: dict[str, list[int]]

    def positions(self, view):
        return self.positions_of[view.request.request_id]


def named_so_far(requests):
    ends, positions_of = set(), {}
    for request in requests:
        path = tuple(cached_tokens(request, False))
        ends.add(path)
        positions_of[request.request_id] = [p for p in range(1, len(path) + 1) if path[:p] in ends]
    return NamedSoFar(positions_of)


@settings(max_examples=150)
@given(traces(unique_ends=True), st.sampled_from([0, 2, 6]), st.data())
def test_the_curve_is_the_caches_own_hit_rate_where_nothing_is_scratch(requests, sigma, data):
    """No scratch: prompts only, one token a page, no prompt twice (so the running state is always
    the one that is kept), and every path fits whole."""
    policy = named_so_far(requests)
    longest = max(
        request.num_prompt_tokens + sigma * len(policy.positions_of[request.request_id])
        for request in requests
    )
    capacity = longest + data.draw(st.integers(0, 80))
    prompts = [request_without_output(request) for request in requests]
    rules = CacheRules(1, sigma, outputs=False)
    cache = RadixCache(
        SharedMemory(1, sigma, capacity), 1, policy, make_eviction("lru"), cache_outputs=False
    )
    hits = sum(record.num_hit_tokens for record in replay(prompts, cache))
    curve = lru_curve(prompts, rules, make_checkpoint("prompt_end"))
    assert curve.hit_tokens([capacity])[0] == hits


def request_without_output(request):
    return replace(request, output=Spans.unknown(1))


def test_on_the_conversation_trace_curve_and_replay_stay_within_a_point(shared_dir):
    """docs/analysis.md quotes the differences; they come from states that a replay does not keep
    again, from the running state's slot, and from memory that outputs take in passing."""
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake").requests
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, 16)
    sizes = [2**30 << power for power in range(8)]
    curve = lru_curve(requests, rules, make_checkpoint("prompt_end")).token_hit_rate(sizes)
    grid = lru_grid(
        requests, rules, lambda: make_checkpoint("prompt_end"), [Capacity(size) for size in sizes]
    ).token_hit_rate()
    assert grid == pytest.approx(curve, abs=0.01)
    assert (grid != curve).any()
