"""The planner's arithmetic against plain LRU lists that try every split."""

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

from hybridsim.analysis.curve import CacheRules, lru_surface
from hybridsim.analysis.planner import (
    GIB,
    Pools,
    SplitRules,
    best_split,
    ceiling,
    fraction_of,
    hits_by_slots,
    longest_request,
    marginal,
    memory_for,
    rate_at,
)
from hybridsim.policies import make_checkpoint
from hybridsim.request import Request, Spans
from tests.analysis.test_curve import brute_force
from tests.analysis.workloads import traces

POLICIES = ["prompt_end", "turn_end", "all_blocks", {"name": "every", "tokens": 3}]
RULES = st.builds(
    CacheRules,
    kv_bytes_per_token=st.integers(1, 2),
    state_bytes=st.sampled_from([3, 7]),
    page_tokens=st.sampled_from([1, 2]),
)
TINY = Pools(0, 0)


def rules_of(rules: CacheRules, longest: Pools = TINY) -> SplitRules:
    return SplitRules(rules.page_tokens * rules.kv_bytes_per_token, rules.state_bytes, longest)


def all_splits(requests, rules, policy, memory):
    """Hits of LRU lists for 0, 1, .. slots, the rest of the memory KV."""
    return [
        brute_force(requests, rules, policy, memory - slots * rules.state_bytes, slots)
        for slots in range(memory // rules.state_bytes + 1)
    ]


@settings(max_examples=60)
@given(traces(max_requests=8), RULES, st.sampled_from(POLICIES), st.integers(1, 90))
def test_the_hits_of_every_split_equal_lru_lists(requests, rules, named, memory):
    policy = make_checkpoint(named)
    surface = lru_surface(requests, rules, policy, refresh="again")
    found = hits_by_slots(surface, memory, rules.state_bytes).tolist()
    assert found == all_splits(requests, rules, policy, memory)


@settings(max_examples=60)
@given(traces(max_requests=8), RULES, st.sampled_from(POLICIES), st.integers(10, 90), st.data())
def test_the_best_split_is_the_best_of_all_that_hold_the_longest(
    requests, rules, named, memory, data
):
    policy = make_checkpoint(named)
    least = Pools(data.draw(st.integers(0, 8)), data.draw(st.integers(1, 3)))
    allowed = [
        hits
        for slots, hits in enumerate(all_splits(requests, rules, policy, memory))
        if slots >= least.state_slots and memory - slots * rules.state_bytes >= least.kv_bytes
    ]
    assume(allowed)
    surface = lru_surface(requests, rules, policy, refresh="again")
    split = best_split(surface, memory, rules_of(rules, least))
    total = sum(request.num_prompt_tokens for request in requests)
    assert split is not None
    assert split.is_roomy
    assert split.token_hit_rate == pytest.approx(max(allowed) / total)
    assert rate_at(surface, split.pools) == pytest.approx(split.token_hit_rate)
    used = split.pools.kv_bytes + split.pools.state_slots * rules.state_bytes
    assert memory - rules.page_tokens * rules.kv_bytes_per_token < used <= memory
    for slots in (split.least_slots, split.most_slots):
        near = rate_at(surface, rules_of(rules).pools(memory, slots))
        assert near >= split.token_hit_rate - 0.001 - 1e-12


@settings(max_examples=40)
@given(traces(max_requests=7), RULES, st.sampled_from(POLICIES), st.floats(0.01, 0.9))
def test_a_target_s_memory_reaches_it_and_a_byte_less_does_not(requests, rules, named, target):
    policy = make_checkpoint(named)
    surface = lru_surface(requests, rules, policy, refresh="again")
    total = sum(request.num_prompt_tokens for request in requests)
    split = memory_for(surface, target, rules_of(rules))
    if split is None:
        assert ceiling(surface) < target
        return
    assert max(all_splits(requests, rules, policy, split.memory_bytes)) / total >= target
    if split.memory_bytes:
        assert max(all_splits(requests, rules, policy, split.memory_bytes - 1)) / total < target


@given(traces(max_requests=6), RULES)
def test_all_of_unlimited_memory_is_the_ceiling_and_more_is_not_reachable(requests, rules):
    surface = lru_surface(requests, rules, make_checkpoint("prompt_end"), refresh="again")
    most = ceiling(surface)
    assert memory_for(surface, most, rules_of(rules)) is not None
    assert memory_for(surface, most + 1e-9, rules_of(rules)) is None


def test_a_gib_is_worth_what_the_surface_gains():
    # Prompts of 3 shared tokens and 1 of their own, one GiB of KV a token, one GiB a state; prompts
    # 1, 2, 3 come twice, and 3 tokens of each can be reused. Between its two uses a prompt's 3
    # tokens lie below 2 whole prompts of 4: 11 GiB of KV. Its state lies below 2 others: 3 slots.
    prompts = [1, 2, 3, 1, 2, 3]
    requests = [
        Request(str(i), Spans.of([(p * 10, 3), (1000 + i, 1)]), Spans.unknown(1))
        for i, p in enumerate(prompts)
    ]
    rules = CacheRules(GIB, GIB, caps_last_token=True)
    policy = make_checkpoint({"name": "every", "tokens": 3})
    surface = lru_surface(requests, rules, policy, refresh="again")
    split_rules = longest_request(requests, 1, GIB, GIB)
    split = memory_for(surface, 9 / 24, split_rules)
    assert split is not None
    assert split.memory_bytes == 14 * GIB
    assert split.pools == Pools(11 * GIB, 3)
    short = best_split(surface, 13 * GIB, split_rules)
    assert short is not None
    assert short.token_hit_rate == 0
    gains = marginal(surface, short, split_rules)
    assert gains.best_points == pytest.approx(100 * 9 / 24)


def test_a_split_of_no_room_is_none_and_a_tight_one_says_so():
    requests = [Request("0", Spans.of([(1, 50)]), Spans.unknown(1))]
    rules = longest_request(requests, 16, 10, 100)
    assert rules.longest == Pools(4 * 160, 1)  # 50 tokens take 4 pages of 16
    surface = lru_surface(requests, CacheRules(10, 100, 16), make_checkpoint("prompt_end"))
    assert best_split(surface, 259, rules) is None  # a page and a state are 260
    tight = best_split(surface, 739, rules)
    assert tight is not None
    assert not tight.is_roomy
    roomy = best_split(surface, 740, rules)
    assert roomy is not None
    assert roomy.is_roomy


@given(st.integers(1, 2**41), st.floats(0.001, 0.999))
def test_a_fraction_gives_back_the_bytes_of_its_states(memory, part):
    states = int(memory * part)
    fraction = fraction_of(memory, states)
    assert states <= int(memory * fraction) <= states + 1
