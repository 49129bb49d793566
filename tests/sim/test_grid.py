"""Replays over one trie against the research cache itself, request by request, every policy."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.lockstep import Capacity
from hybridsim.errors import UserError
from hybridsim.models import get_model
from hybridsim.policies import CHECKPOINT, EVICTION, make_checkpoint, make_eviction, make_thinning
from hybridsim.policies.base import Setting
from hybridsim.sim.grid import MakePolicies, policy_grid
from hybridsim.sim.setting import setting_for
from hybridsim.traces import read_trace
from tests.analysis.workloads import (
    CACHE_RULES,
    found_by,
    found_in_rows,
    research_cache,
    traces,
)
from tests.policies.parameters import named, named_thinning

EVICTIONS = [*map(named, EVICTION), {"name": "lru", "refresh": "consumed"}]
CHECKPOINTS = [*map(named, CHECKPOINT)]
THINNINGS = [None, None, named_thinning("path_cap"), named_thinning("coverage")]


def makers(requests, rules, checkpoint, eviction, thinning, shared):
    def setting():
        flops = lambda n, p: 5 * n + n * (n + 2 * p)  # noqa: E731
        rng = np.random.default_rng(1)
        return Setting(requests, rules.kv_bytes_per_token, rules.state_bytes, flops, rng, shared)

    return MakePolicies(
        lambda: make_checkpoint(checkpoint),
        lambda: make_eviction(eviction),
        lambda: make_thinning(thinning),
        setting,
    )


def by_the_cache(requests, rules, make, capacity):
    cache = research_cache(rules, capacity, make.checkpoint(), make.eviction(), make.thinning())
    cache.prepare(make.setting())
    return found_by(cache, requests)


@pytest.mark.parametrize(
    "eviction", EVICTIONS, ids=lambda value: "-".join(map(str, value.values()))
)
@settings(max_examples=25)
@given(
    requests=traces(grids=(1, 2)),
    rules=CACHE_RULES,
    checkpoint=st.sampled_from(CHECKPOINTS),
    thinning=st.sampled_from(THINNINGS),
    sizes=st.lists(st.integers(4, 90), min_size=2, max_size=3),
    slots=st.sampled_from([None, 1, 2, 4]),
)
def test_the_grid_equals_the_cache_hit_by_hit(
    eviction, requests, rules, checkpoint, thinning, sizes, slots
):
    capacities = [Capacity(size, slots) for size in sizes]
    make = makers(requests, rules, checkpoint, eviction, thinning, slots is None)
    layout = "shared" if slots is None else "split"
    if layout not in EVICTION[eviction["name"]].layouts:
        with pytest.raises(UserError, match=EVICTION[eviction["name"]].refusal):
            policy_grid(requests, rules, make, capacities)
        return
    grid = policy_grid(requests, rules, make, capacities)
    expected = [by_the_cache(requests, rules, make, capacity) for capacity in capacities]
    assert found_in_rows(grid) == expected


@pytest.mark.parametrize("eviction", ["lfu", "gdsf", {"name": "lru", "refresh": "consumed"}])
def test_the_grid_equals_the_cache_on_the_conversation_trace(shared_dir, eviction):
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake", first=1500).requests
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, 16)
    make = MakePolicies(
        lambda: make_checkpoint("prompt_end+branch"),
        lambda: make_eviction(eviction),
        setting=lambda: setting_for(requests, model, 0, shared=True),
    )
    capacities = [Capacity(2 * 2**30), Capacity(8 * 2**30)]
    grid = policy_grid(requests, rules, make, capacities)
    expected = [by_the_cache(requests, rules, make, capacity) for capacity in capacities]
    assert found_in_rows(grid) == expected
