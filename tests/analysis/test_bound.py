"""Bounds against an LP solver, a search over all policies, Belady, and replays of the cache."""

from dataclasses import MISSING, fields, replace

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from hybridsim.analysis.bound import bound, bound_of_windows, bracket
from hybridsim.analysis.dual import Dual, Prices
from hybridsim.analysis.interval import BoundRules, interval_problem
from hybridsim.analysis.reward import Reward
from hybridsim.analysis.room import rooms
from hybridsim.cost.load import get_cost_model
from hybridsim.models import get_model
from hybridsim.policies import CHECKPOINT, EVICTION
from hybridsim.request import Spans
from hybridsim.sim.replay import replay
from tests.analysis.optimum import TokenProblem, belady, best_policy, lp_optimum
from tests.analysis.workloads import memory_of, registry_cache, request_of, traces

SLACK = 1e-9


def _values(registry):
    """Every policy of a registry, as a config names it; what it must be given is 3."""
    return [
        {"name": name}
        | {
            item.name: 3
            for item in fields(factory)
            if item.default is MISSING and item.default_factory is MISSING and item.init
        }
        for name, factory in registry.items()
    ]


CHECKPOINTS = [*_values(CHECKPOINT), "prompt_end+branch"]
EVICTIONS = _values(EVICTION)


@settings(max_examples=60)
@given(
    traces(max_requests=10, max_tokens=8),
    st.sampled_from([0, 2, 5]),
    st.integers(4, 40),
    st.sampled_from(["forced", "bypass"]),
    st.booleans(),
)
def test_the_upper_bound_is_the_lp_optimum_and_never_below(
    requests, sigma, capacity, insertion, caps
):
    token_problem = TokenProblem(requests, caps)
    lp = lp_optimum(token_problem, 1, sigma, capacity, forced=insertion == "forced")
    found = bound(
        requests, 1, sigma, capacity, insertion=insertion, caps_last_token=caps, num_steps=1500
    )
    upper = found.upper * token_problem.total
    assert lp - 1e-6 <= upper <= lp * 1.02 + 0.3
    assert found.lower <= found.upper + SLACK


@settings(max_examples=30)
@given(
    traces(max_requests=8, max_tokens=8), st.integers(3, 15), st.integers(1, 4),
    st.sampled_from(["forced", "bypass", "states apart"]),
)  # fmt: skip
def test_with_two_pools_the_upper_bound_is_the_lp_optimum(requests, capacity, slots, kind):
    token_problem = TokenProblem(requests, True)
    forced, apart = kind != "bypass", kind == "states apart"
    lp = lp_optimum(
        token_problem, 1, 3, capacity, forced=forced, slots=slots * 3, states_apart=apart
    )
    rules = BoundRules(1, 3, insertion="forced" if forced else "bypass", states_apart=apart)
    found = bracket(interval_problem(requests, rules), capacity, slots * 3, num_steps=1500)
    upper = found.upper * token_problem.total
    assert lp - 1e-6 <= upper <= lp * 1.02 + 0.3
    assert found.lower <= found.upper + SLACK


@settings(max_examples=40)
@given(
    traces(max_requests=9, max_tokens=9), st.integers(8, 20), st.integers(1, 4), st.integers(1, 9)
)
def test_with_windows_for_states_it_is_the_lp_optimum(requests, capacity, window, pool):
    """The program may resume at any token; that only ends of runs are looked at loses nothing."""
    token_problem = TokenProblem(requests, True)
    lp = lp_optimum(
        token_problem, 1, 1, capacity, forced=True, slots=pool, states_apart=True, window=window
    )
    problem = interval_problem(requests, BoundRules(1, 5))
    upper = bound_of_windows(problem, window, capacity, pool)
    assert lp - 1e-6 <= upper * problem.total_reward <= lp * 1.03 + 0.4


@settings(max_examples=40)
@given(
    traces(max_requests=8, max_tokens=7), st.sampled_from([0, 2, 5]), st.integers(4, 40),
    st.booleans(),
)  # fmt: skip
def test_of_caches_that_keep_last_tokens_it_is_the_lp_optimum_too(
    requests, sigma, capacity, forced
):
    """As Marconi's: the same as one more generated token each, which is then the one not kept."""
    longer = [
        replace(r, output=r.output.joined(Spans.of([(10**6 + i, 1)])))
        for i, r in enumerate(requests)
    ]
    lp = lp_optimum(TokenProblem(longer, False), 1, sigma, capacity, forced=forced)
    rules = BoundRules(
        1, sigma, last_output=True, caps_last_token=False,
        insertion="forced" if forced else "bypass",
    )  # fmt: skip
    problem = interval_problem(requests, rules)
    upper = bracket(problem, capacity, num_steps=1500).upper * problem.total_reward
    assert lp - 1e-6 <= upper <= lp * 1.02 + 0.3


@settings(max_examples=25)
@given(traces(max_requests=8, max_tokens=7), st.integers(4, 25))
def test_a_convex_reward_is_bounded_at_every_position(requests, capacity):
    """Quadratic, as the FLOPs of attention are: the LP may resume at any token."""
    reward = Reward("flops", 2.0, 0.5)
    token_problem = TokenProblem(requests, True)
    lp = lp_optimum(
        token_problem, 1, 2, capacity, forced=True, reward=lambda p: 2.0 * p + 0.5 * p * p
    )
    problem = interval_problem(requests, BoundRules(1, 2), reward=reward)
    found = bracket(problem, capacity, num_steps=1500)
    upper = found.upper * problem.total_reward
    assert lp - 1e-6 <= upper <= lp * 1.03 + 1.0
    assert found.lower <= found.upper + SLACK


@settings(max_examples=40)
@given(traces(max_requests=4, max_tokens=3), st.integers(0, 2), st.integers(2, 9), st.booleans())
def test_the_best_of_all_policies_lies_in_the_bracket(requests, sigma, capacity, forced):
    token_problem = TokenProblem(requests, True)
    best = best_policy(token_problem, 1, sigma, capacity, forced=forced)
    insertion = "forced" if forced else "bypass"
    found = bound(requests, 1, sigma, capacity, insertion=insertion, num_steps=300)
    assert found.upper * token_problem.total >= best - 1e-6
    assert found.lower * token_problem.total <= best + 1e-6


# 1 1 1 1 1 waits for the third request and 2 1 for the last: six tokens. The 2 before that need not
# wait, since the fourth computes it again, as its last token.
LAST_TOKEN_MADE_ANEW = [
    request_of(0, [1, 1], [1, 1, 1, 1]),
    request_of(1, [2], [1, 1]),
    request_of(2, [1] * 7, []),
    request_of(3, [2], []),
    request_of(4, [2, 1, 1, 1], []),
]


@settings(max_examples=40)
@given(traces(max_requests=12, max_tokens=8), st.integers(1, 25), st.booleans())
@example(LAST_TOKEN_MADE_ANEW, 6, True)
def test_with_free_states_the_bound_is_beladys_rule(requests, capacity, caps):
    """../shared/spec/policies-and-bounds.md, section 4 (a): MIN is optimal and prefix-closed."""
    token_problem = TokenProblem(requests, caps)
    hits = belady(token_problem, capacity)
    lp = lp_optimum(token_problem, 1, 0, capacity, forced=False)
    assert lp == pytest.approx(hits, abs=1e-6)
    found = bound(
        requests, 1, 0, capacity, insertion="bypass", caps_last_token=caps, num_steps=1500
    )
    assert hits - 1e-6 <= found.upper * token_problem.total <= hits * 1.02 + 0.3


@given(
    traces(max_requests=8, max_tokens=8),
    st.lists(st.floats(0, 3), min_size=20, max_size=20),
    st.integers(3, 30),
)
def test_every_price_gives_an_upper_bound(requests, prices, capacity):
    token_problem = TokenProblem(requests, True)
    lp = lp_optimum(token_problem, 1, 2, capacity, forced=True)
    problem = interval_problem(requests, BoundRules(1, 2))
    memory = rooms(problem.load, 2, capacity)
    given_prices = Prices.zero(len(requests))
    given_prices.interludes[:] = prices[: len(requests)]
    given_prices.events[:] = prices[-len(requests) :]
    given_prices.events[~memory.kv.is_bound] = 0.0
    assert Dual(problem, memory).choose(given_prices, given_prices).bound >= lp - 1e-6


@settings(max_examples=200)
@given(
    traces(grids=(1, 2)),
    st.sampled_from(CHECKPOINTS),
    st.sampled_from(EVICTIONS),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([0, 3, 8]),
    st.integers(10, 70),
    st.sampled_from([None, 1, 2, 4]),
    st.booleans(),
    st.booleans(),
)
def test_no_policy_of_the_registries_beats_the_bound(
    requests, checkpoint, evicting, page_tokens, sigma, capacity, slots, caps, outputs
):
    cache = registry_cache(
        requests, memory_of(page_tokens, sigma, capacity, slots), page_tokens, checkpoint, evicting,
        compute_last_token=caps, cache_outputs=outputs,
    )  # fmt: skip
    if cache is None:
        return
    hits = sum(record.num_hit_tokens for record in replay(requests, cache))
    found = bound(
        requests, 1, sigma, capacity if slots is None else capacity // page_tokens * page_tokens,
        state_capacity_bytes=None if slots is None else slots * sigma,
        page_tokens=page_tokens, caps_last_token=caps, outputs=outputs, num_steps=60,
    )  # fmt: skip
    total = sum(request.num_prompt_tokens for request in requests)
    assert hits <= found.upper * total + 1e-6


def test_rewards_in_flops_and_seconds_grow_with_the_prompt():
    """Doubling the prompt more than doubles what attention-heavy prefill saves."""
    model = get_model("qwen3.5-0.8b")
    flops = Reward.flops(model, 32768)
    exact = model.prefill_flops(32768).total
    assert flops.at(32768) == pytest.approx(exact, rel=0.02)
    assert flops.at(32768) > 2 * flops.at(16384)
    cost = get_cost_model("h200", model, 1)
    seconds = Reward.seconds(cost, 32768)
    assert 0 < seconds.at(1000) < seconds.at(32768) < 60


def test_a_request_that_may_be_cut_is_sure_of_its_prompt_only():
    """Of 8 + 5 tokens 12 are computed: the last is never fed back. From a limit of 12 down 8."""
    requests = [request_of(0, range(8), range(5)), request_of(1, range(4), range(3))]
    own = {
        limit: interval_problem(
            requests, BoundRules(2, 3, longest_tokens=limit)
        ).load.events_kv_bytes.tolist()
        for limit in (None, 13, 12, 6)
    }
    assert own == {None: [24, 12], 13: [24, 12], 12: [16, 12], 6: [16, 8]}
