"""The best placement of M states: fast against plain dynamic programming and every choice."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.policies import make_checkpoint
from hybridsim.policies.checkpoint.base import PromptView
from hybridsim.policies.checkpoint.placement import expected_replay, places, solve
from hybridsim.request import Request, Spans

histograms = st.dictionaries(
    st.integers(1, 60), st.floats(1e-3, 10, allow_nan=False), min_size=1, max_size=25
)


def plain_dp(weights, num_states, length):
    """D[m][j] = min over 1 <= s <= j of D[m-1][s-1] + sum of p(L) (L - s) for L = s..j, and
    D[0][j] = sum of p(L) L: O(N^2 M) and literally as published. At most `num_states`.
    """
    depth = range(1, length + 1)
    costs = [0.0]
    for j in depth:
        costs.append(costs[-1] + weights.get(j, 0.0) * j)
    for _ in range(num_states):
        fewer = costs
        costs = [0.0]
        for j in depth:
            best = fewer[j]
            for s in range(1, j + 1):
                tail = sum(weights.get(at, 0.0) * (at - s) for at in range(s, j + 1))
                best = min(best, fewer[s - 1] + tail)
            costs.append(best)
    return costs[length]


def solved(weights, num_states):
    depths = np.array(sorted(weights), dtype=float)
    return depths, np.array([weights[int(d)] for d in depths]), num_states


@given(weights=histograms, num_states=st.integers(1, 6))
@settings(max_examples=80)
def test_linear_time_placement_costs_as_little_as_the_plain_programme(weights, num_states):
    depths, w, _ = solved(weights, num_states)
    plan = solve(depths, w, num_states)
    for row in range(len(depths)):
        seen = {d: weights[d] for d in sorted(weights)[: row + 1]}
        best = plain_dp(seen, num_states, int(depths[row]))
        positions = places(plan, depths, num_states, row)
        assert plan.costs[num_states, row] == pytest.approx(best, abs=1e-9)
        assert len(positions) <= num_states
        assert positions == sorted(set(positions))
        cost = expected_replay(depths[: row + 1], w[: row + 1], positions)
        assert cost == pytest.approx(best, abs=1e-9)


@given(weights=st.dictionaries(st.integers(1, 9), st.integers(1, 5), min_size=1, max_size=6),
       num_states=st.integers(1, 3))  # fmt: skip
@settings(max_examples=60)
def test_no_choice_of_positions_costs_less(weights, num_states):
    depths, w, _ = solved(weights, num_states)
    plan = solve(depths, w, num_states)
    every = (c for m in range(num_states + 1) for c in combinations(range(1, 10), m))
    best = min(sum(p * (at - max((s for s in c if s <= at), default=0))
                   for at, p in weights.items()) for c in every)  # fmt: skip
    assert plan.costs[num_states, -1] == pytest.approx(best)


def view(num_tokens, match=0, hit=0, final=None, marks=()):
    request = Request("r", Spans.of([(1, num_tokens)]), Spans.unknown(0), marks=marks)
    return PromptView(request, hit, match, num_tokens if final is None else final, 1)


@pytest.mark.parametrize(
    ("policy", "asked", "expected"),
    [
        ("none", view(10), []),
        ("prompt_end", view(10, final=14), [10]),
        ("turn_end", view(10, final=14), [14]),
        ({"name": "every", "tokens": 4}, view(10, hit=4, final=14), [8, 12]),
        ("all_blocks", view(4, hit=1), [2, 3, 4]),
        ("branch", view(10, match=6, hit=2), [6]),
        ("branch", view(10, match=6, hit=6), []),
        ("prompt_end+branch", view(10, match=6, hit=2), [10, 6]),
        ("marconi", view(10, match=6, hit=2, final=14), [14, 6]),
        # the last position before the last token; the junction; multiples of 4 up to the end
        ("retention", view(10, match=6, hit=2), [9, 6]),
        ("retention", view(10, match=2, hit=2), [9]),
        ({"name": "retention", "tokens": 4}, view(10, match=6, hit=2, final=12), [9, 6, 4, 8, 12]),
        ("marked", view(10, marks=(3, 7)), [3, 7]),
        # 10 // (3 + 1) = 2: the first three multiples of 2
        ({"name": "balanced", "states": 3}, view(10), [2, 4, 6]),
        ({"name": "balanced", "states": 20}, view(10), []),
        ("sqrt", view(17), [4, 8, 12, 16]),  # isqrt(17) = 4
        ("log", view(4096), [1024, 2048, 4096]),
        ({"name": "log", "minimum": 4}, view(33), [4, 8, 16, 32]),
    ],
)  # fmt: skip
def test_positions_by_hand(policy, asked, expected):
    assert list(make_checkpoint(policy).positions(asked)) == expected


def test_dp_optimal_learns_the_overlaps_and_fits_them_to_each_prompt():
    policy = make_checkpoint(
        {"name": "dp_optimal", "states": 2, "bin_tokens": 10, "decay": 1.0, "replan": 1}
    )
    # Nothing seen: balanced, 90 // 3.
    assert list(policy.positions(view(90))) == [30, 60]
    for match in (50, 50, 80, 55):
        policy.positions(view(100, match=match))
    # Bins 50 (three times, 55 is floored) and 80: a state each loses nothing.
    assert list(policy.positions(view(100, match=80))) == [50, 80]
    # A prompt of 70 can only be overlapped at 50.
    assert policy.places(70) == [50]
    assert policy.places(40) == []


def test_dp_optimal_forgets():
    """Old overlaps at 30 fade by 1/2 each; one state goes where the recent ones are."""
    policy = make_checkpoint(
        {"name": "dp_optimal", "states": 1, "bin_tokens": 10, "decay": 0.5, "replan": 1}
    )
    for match in (30,) * 9 + (90,) * 3:
        policy.positions(view(100, match=match))
    # Weights 1/8 + 1/16 + .. < 1/4 at 30; 1 + 1/2 + 1/4 at 90. A state at 30 leaves 60 x 1.75,
    # one at 90 leaves 30 x 1/4.
    assert policy.places(100) == [90]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "balanced", "states": 0},
        {"name": "every", "tokens": 0},
        {"name": "dp_optimal", "states": 2, "decay": 0.0},
        {"name": "dp_optimal", "states": 2, "replan": 0},
        {"name": "log", "minimum": 0},
        {"name": "retention", "tokens": -1},
    ],
)
def test_impossible_parameters_are_named(value):
    from hybridsim.errors import UserError

    with pytest.raises(UserError, match=r"cache\.checkpoint\."):
        make_checkpoint(value)
