"""One-pass curves against plain LRU lists, the block cache, and published points."""

import re
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from hybridsim.analysis import found
from hybridsim.analysis.blocks import block_curve
from hybridsim.analysis.curve import CacheRules, lru_curve, lru_surface
from hybridsim.cache.block_cache import BlockLRU
from hybridsim.errors import UserError
from hybridsim.policies import make_checkpoint
from hybridsim.request import Request, Spans
from hybridsim.traces import read_trace
from tests.analysis.workloads import (
    CACHE_RULES,
    list_lru,
    replay_lists,
    request_of,
    traces,
)
from tests.plain import tokens_of

POLICIES = [
    "none",
    "prompt_end",
    "turn_end",
    "all_blocks",
    "prompt_end+turn_end",
    {"name": "every", "tokens": 4},
    {"name": "every", "tokens": 3},
]


def brute_force(requests, rules, policy, capacity, slots=None, num_warmup=0, refresh="again"):
    caches = [list_lru(rules, capacity, slots)]
    hits, _ = replay_lists(requests, rules, policy, caches, refresh)
    return sum(hits[0][num_warmup:])


@settings(max_examples=150)
@given(
    traces(grids=(1, 2, 4)),
    CACHE_RULES,
    st.sampled_from(POLICIES),
    st.integers(0, 6),
    st.sampled_from(["named", "again"]),
    st.data(),
)
def test_the_curve_equals_list_lru_at_20_random_capacities(
    requests, rules, named, num_warmup, refresh, data
):
    policy = make_checkpoint(named)
    curve = lru_curve(requests, rules, policy, num_warmup=num_warmup, refresh=refresh)
    capacities = data.draw(st.lists(st.integers(0, 150), min_size=20, max_size=20))
    expected = [
        brute_force(requests, rules, policy, capacity, num_warmup=num_warmup, refresh=refresh)
        for capacity in capacities
    ]
    assert curve.hit_tokens(capacities).tolist() == expected


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    traces(grids=(1, 2, 4), max_requests=9),
    CACHE_RULES,
    st.sampled_from([*POLICIES, "log", "sqrt", {"name": "balanced", "states": 2}]),
    st.integers(0, 4),
)
def test_the_default_curve_equals_list_lru_at_every_capacity_where_larger_caches_hold_more(
    requests, rules, named, num_warmup
):
    """Touching what is there makes a larger cache touch more, so that it may hold less."""
    policy = make_checkpoint(named)
    capacities = range(90)
    caches = [list_lru(rules, capacity) for capacity in capacities]
    hits, is_nested = replay_lists(requests, rules, policy, caches, "path")
    assume(is_nested)
    curve = lru_curve(requests, rules, policy, num_warmup=num_warmup)
    expected = [sum(row[num_warmup:]) for row in hits]
    assert curve.hit_tokens(capacities).tolist() == expected


def test_a_larger_cache_may_hold_less():
    """Four one-token prompts A, B, A', C over 1-byte pages and 2-byte states (prompt_end).

    A' is A and a token more. 5 bytes hold two of A, B (3 bytes each) only in part: B evicts A's
    state, so A' finds none and keeps its own: KV A, A', one state: 4 bytes, and 1 byte of B's KV.
    6 bytes hold both, so A' touches A's state too: 2 + 4 bytes, and B is gone.
    """
    prompts = [[1], [2], [1, 3]]
    requests = [request_of(i, prompt, []) for i, prompt in enumerate(prompts)]
    rules = CacheRules(1, 2, outputs=False, caps_last_token=False)
    caches = [list_lru(rules, 5), list_lru(rules, 6)]
    _, is_nested = replay_lists(requests, rules, make_checkpoint("prompt_end"), caches, "path")
    b_kv = ("kv", tuple(tokens_of(requests[1].prompt)))
    assert [b_kv in cache.resident for cache in caches] == [True, False]
    assert not is_nested


@given(traces(max_requests=14), st.sampled_from([1, 5]), st.sampled_from(["prompt_end", "log"]))
def test_the_stack_may_be_swept_at_any_time_and_asked_one_by_one_or_together(
    requests, state_bytes, named
):
    rules, policy = CacheRules(1, state_bytes), make_checkpoint(named)
    usual = lru_curve(requests, rules, policy).hit_tokens(range(200))
    with mock.patch.multiple(found, _LEAST_ROOM=4, _FEW=0):
        assert lru_curve(requests, rules, policy).hit_tokens(range(200)).tolist() == usual.tolist()


@settings(max_examples=80, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    traces(grids=(1, 2), max_requests=9),
    CACHE_RULES.filter(lambda r: r.state_bytes),
    st.sampled_from(POLICIES),
    st.data(),
)
def test_the_default_surface_equals_two_lists_where_larger_pools_hold_more(
    requests, rules, named, data
):
    policy = make_checkpoint(named)
    kv = sorted(data.draw(st.sets(st.integers(0, 90), min_size=3, max_size=3)))
    slots = range(16)
    total = sum(request.num_prompt_tokens for request in requests)
    expected = []
    for size in kv:
        caches = [list_lru(rules, size, count) for count in slots]
        hits, is_nested = replay_lists(requests, rules, policy, caches, "path")
        assume(is_nested)
        expected.append([sum(row) / total for row in hits])
    surface = lru_surface(requests, rules, policy)
    np.testing.assert_allclose(surface.token_hit_rate(kv, list(slots)), expected, rtol=1e-12)


@settings(max_examples=80)
@given(
    traces(grids=(1, 2)),
    CACHE_RULES.filter(lambda r: r.state_bytes),
    st.sampled_from(POLICIES),
    st.sampled_from(["named", "again"]),
    st.data(),
)
def test_the_surface_equals_list_lru_with_two_pools(requests, rules, named, refresh, data):
    policy = make_checkpoint(named)
    surface = lru_surface(requests, rules, policy, refresh=refresh)
    kv = sorted(data.draw(st.sets(st.integers(0, 90), min_size=5, max_size=5)))
    slots = sorted(data.draw(st.sets(st.integers(0, 25), min_size=4, max_size=4)))
    total = sum(request.num_prompt_tokens for request in requests)
    expected = [
        [brute_force(requests, rules, policy, k, s, refresh=refresh) / total for s in slots]
        for k in kv
    ]
    np.testing.assert_allclose(surface.token_hit_rate(kv, slots), expected, rtol=1e-12)


@given(traces(), st.integers(1, 4), st.integers(10, 60))
def test_a_budget_line_lies_on_the_surface(requests, state_bytes, total_bytes):
    rules = CacheRules(1, state_bytes)
    surface = lru_surface(requests, rules, make_checkpoint("prompt_end"))
    counts, rates = surface.along_budget(total_bytes, state_bytes)
    for count, rate in zip(counts.tolist(), rates, strict=True):
        at = surface.token_hit_rate([total_bytes - count * state_bytes], [count])
        assert rate == pytest.approx(at[0, 0])


@st.composite
def block_traces(draw):
    """Blocks of 4 tokens; the last one may be partial, and partial blocks may share ids."""
    requests = []
    for index in range(draw(st.integers(1, 12))):
        ids = draw(st.lists(st.integers(1, 2), min_size=1, max_size=5))
        sizes = [4] * (len(ids) - 1) + [draw(st.integers(1, 4))]
        prompt = Spans.of(list(zip(ids, sizes, strict=True)))
        requests.append(Request(str(index), prompt, Spans.unknown(1), grid_tokens=4))
    return requests


@given(block_traces(), st.integers(0, 5))
def test_the_block_curve_equals_the_block_cache_at_every_size(requests, num_warmup):
    curve = block_curve(requests, num_warmup=num_warmup)
    for num_blocks in range(1, 25):
        cache = BlockLRU(num_blocks)
        records = [cache.serve(request) for request in requests]
        hits = sum(record.num_hit_tokens for record in records[num_warmup:])
        assert curve.hit_tokens([num_blocks])[0] == hits


# Two independent programs agree on these: ../shared/spec/policies-and-bounds.md, section 5.
BLOCK_POINTS = {
    1024: 0.04704, 2048: 0.05644, 4096: 0.08739, 8192: 0.18820,
    16384: 0.27889, 32768: 0.35575, 65536: 0.38365,
}  # fmt: skip


def test_the_conversation_trace_gives_the_seven_published_points(shared_dir):
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake").requests
    curve = block_curve(requests, num_warmup=len(requests) // 2)
    rates = curve.token_hit_rate(list(BLOCK_POINTS))
    np.testing.assert_allclose(rates, list(BLOCK_POINTS.values()), atol=5e-6)


@pytest.mark.parametrize(
    "named",
    [
        "branch", "prompt_end+branch", "marconi", {"name": "retention", "tokens": 4},
        {"name": "dp_optimal", "states": 2, "bin_tokens": 1, "replan": 1},
    ],
)  # fmt: skip
def test_policies_that_look_at_the_cache_are_refused(named):
    requests = [Request(str(i), Spans.of([(1, 9), (i + 2, 4)]), Spans.unknown(1)) for i in range(5)]
    name = re.escape(named if isinstance(named, str) else named["name"])
    with pytest.raises(UserError, match=f"'{name}'.*differs from capacity to capacity.*--grid"):
        lru_curve(requests, CacheRules(1, 1), make_checkpoint(named))
