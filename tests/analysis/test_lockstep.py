"""The grid replay against the research cache itself, request by request."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace
from tests.analysis.workloads import memory_of, traces

POLICIES = [
    "none", "prompt_end", "turn_end", "branch", "prompt_end+branch", "all_blocks", "sqrt",
    {"name": "every", "tokens": 3}, {"name": "balanced", "states": 2},
    {"name": "dp_optimal", "states": 2}, "marconi",
]  # fmt: skip


def by_the_cache(requests, rules, named, capacity):
    cache = RadixCache(
        memory_of(rules, capacity), rules.page_tokens, make_checkpoint(named), make_eviction("lru"),
        compute_last_token=rules.caps_last_token, cache_outputs=rules.outputs,
    )  # fmt: skip
    records = replay(requests, cache)
    return [(record.num_match_tokens, record.num_hit_tokens) for record in records]


@settings(max_examples=250)
@given(
    traces(grids=(1, 2)),
    st.builds(
        CacheRules,
        kv_bytes_per_token=st.integers(1, 3),
        state_bytes=st.sampled_from([0, 1, 5, 9]),
        page_tokens=st.sampled_from([1, 2, 3]),
        outputs=st.booleans(),
        caps_last_token=st.booleans(),
    ),
    st.sampled_from(POLICIES),
    st.lists(
        st.builds(Capacity, st.integers(4, 90), st.sampled_from([None, None, 1, 2, 4])),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_the_grid_equals_the_cache_hit_by_hit(requests, rules, named, capacities):
    grid = lru_grid(requests, rules, lambda: make_checkpoint(named), capacities)
    for row, capacity in enumerate(capacities):
        found = zip(grid.match_tokens[row].tolist(), grid.hit_tokens[row].tolist(), strict=True)
        assert list(found) == by_the_cache(requests, rules, named, capacity)


@pytest.mark.parametrize("named", ["prompt_end", "branch"])
def test_the_grid_equals_the_cache_on_the_conversation_trace(shared_dir, named):
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake", first=1500).requests
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, 16)
    capacities = [Capacity(8 * 2**30), Capacity(6 * 2**30, 60)]
    grid = lru_grid(requests, rules, lambda: make_checkpoint(named), capacities)
    for row, capacity in enumerate(capacities):
        found = zip(grid.match_tokens[row].tolist(), grid.hit_tokens[row].tolist(), strict=True)
        assert list(found) == by_the_cache(requests, rules, named, capacity)
