"""Thinning rules by hand-worked examples."""

from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench import ask, make_cache, states

from hybridsim.errors import UserError
from hybridsim.policies import make_thinning
from hybridsim.sim.replay import replay


def depths(requests, thinning, checkpoint="prompt_end"):
    cache = make_cache(requests, checkpoint, thinning=thinning)
    replay(requests, cache)
    return [len(text) for text in states(cache)], cache


def test_path_cap_drops_the_shallowest():
    requests = [ask("a" * n) for n in (2, 4, 6, 8)]
    assert depths(requests, {"name": "path_cap", "max_states": 2})[0] == [6, 8]


def test_path_cap_spares_a_fork():
    # aa has two children when aaaaaa comes, so 4 goes instead.
    requests = [ask("aa"), ask("aaaa"), ask("aabb"), ask("aaaaaa")]
    cache = depths(requests, {"name": "path_cap", "max_states": 2})[1]
    assert states(cache) == ["aa", "aaaaaa", "aabb"]


def test_path_cap_is_soft():
    # The second prompt saves at the fork aa and at its end: two, though the cap is 1.
    requests = [ask("aab"), ask("aac"), ask("aad")]
    rule = {"name": "path_cap", "max_states": 1}
    cache = depths(requests, rule, "prompt_end+branch")[1]
    assert states(cache) == ["aa", "aab", "aac", "aad"]


def test_coverage_drops_the_state_closest_below_another():
    # 2, 3, 8, 9: losing 3 adds a replay of 1 token, losing 2 of 2, losing 8 of 5.
    requests = [ask("a" * 9, marks=(2, 3, 8, 9))]
    found, cache = depths(requests, {"name": "coverage", "max_states": 3}, "marked")
    assert found == [2, 8, 9]
    cache.check()


def test_variance_keeps_the_spacing_even():
    # Without 2 the gaps are 3, 7, 10 (variance 8.2); without 3: 2, 8, 10 (11.6); without 10 it
    # is worse still.
    requests = [ask("a" * 20, marks=(2, 3, 10, 20))]
    assert depths(requests, {"name": "variance", "max_states": 3}, "marked")[0] == [3, 10, 20]


@given(ends=st.sets(st.integers(1, 60), min_size=2, max_size=12), cap=st.integers(1, 6))
def test_variance_leaves_the_most_even_gaps_at_each_drop(ends, cap):
    states = [SimpleNamespace(end=x, state_locks=0, state_source="prefix") for x in sorted(ends)]
    rule = make_thinning({"name": "variance", "max_states": cap})
    left = sorted(ends)

    def variance(chosen):
        gaps = [Fraction(b - a) for a, b in zip([0, *chosen], chosen, strict=False)]
        mean = sum(gaps) / len(gaps)
        return sum((gap - mean) ** 2 for gap in gaps) / len(gaps)

    for dropped in rule.dropped(states):
        without = [[x for x in left if x != end] for end in left[:-1]]
        left.remove(dropped.end)
        assert variance(left) == min(map(variance, without))
    assert len(left) == max(min(len(ends), cap), 1)


def test_variance_spares_prompt_ends():
    # The first prompt's end at 3 may not go, so 2 or 10 must: without 2 it is more even.
    requests = [ask("aaa"), ask("a" * 20, marks=(4, 10, 20))]
    rule = {"name": "variance", "max_states": 3}
    assert depths(requests, rule, "prompt_end+marked")[0] == [3, 10, 20]


def test_fifo_cap_keeps_a_distance_and_the_newest():
    # From 0: 2 is too near, 5 is saved, 7 is too near to 5, 10 is saved, 20 is the last.
    requests = [ask("a" * 20, marks=(2, 5, 7, 10, 20))]
    rule = {"name": "fifo_cap", "max_states": 9, "min_spacing_tokens": 4}
    assert depths(requests, rule, "marked")[0] == [5, 10, 20]
    assert depths(requests, {**rule, "max_states": 2}, "marked")[0] == [10, 20]


def test_a_dropped_state_is_counted_and_its_slot_is_free():
    requests = [ask("a" * n) for n in (2, 4, 6)]
    cache = make_cache(requests, "prompt_end", thinning={"name": "path_cap", "max_states": 1})
    records = replay(requests, cache)
    assert [r.num_evicted_states for r in records] == [0, 1, 1]
    assert cache.usage().state_bytes == 10


def test_no_thinning_is_none():
    assert make_thinning(None) is None


@pytest.mark.parametrize("value", ["path_cap", {"name": "fifo_cap", "max_states": 0}, "half"])
def test_bad_rules_are_named(value):
    with pytest.raises(UserError, match=r"cache\.thinning"):
        make_thinning(value)
