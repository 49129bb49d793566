"""The grid replay against the research cache itself, request by request."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.traces import read_trace
from tests.analysis.workloads import (
    CACHE_RULES,
    found_by,
    found_in_rows,
    research_cache,
    traces,
)

POLICIES = [
    "none", "prompt_end", "turn_end", "branch", "prompt_end+branch", "all_blocks", "sqrt",
    {"name": "every", "tokens": 3}, {"name": "balanced", "states": 2},
    {"name": "dp_optimal", "states": 2}, "marconi",
]  # fmt: skip


def by_the_cache(requests, rules, named, capacity):
    policies = make_checkpoint(named), make_eviction("lru")
    return found_by(research_cache(rules, capacity, *policies), requests)


@settings(max_examples=250)
@given(
    traces(grids=(1, 2)),
    CACHE_RULES,
    st.sampled_from(POLICIES),
    st.lists(
        st.builds(Capacity, st.integers(4, 90), st.sampled_from([None, None, 1, 2, 4])),
        min_size=1, max_size=4,
    ),
)  # fmt: skip
def test_the_grid_equals_the_cache_hit_by_hit(requests, rules, named, capacities):
    grid = lru_grid(requests, rules, lambda: make_checkpoint(named), capacities)
    expected = [by_the_cache(requests, rules, named, capacity) for capacity in capacities]
    assert found_in_rows(grid) == expected


@pytest.mark.parametrize("named", ["prompt_end", "branch"])
def test_the_grid_equals_the_cache_on_the_conversation_trace(shared_dir, named):
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake", first=1500).requests
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, 16)
    capacities = [Capacity(8 * 2**30), Capacity(6 * 2**30, 60)]
    grid = lru_grid(requests, rules, lambda: make_checkpoint(named), capacities)
    expected = [by_the_cache(requests, rules, named, capacity) for capacity in capacities]
    assert found_in_rows(grid) == expected
