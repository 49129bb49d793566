"""The ceiling: how much of a trace any policy can hit in so much memory, from above and below.

`upper` is proven: no placement of states, no block size, no admission and no eviction earns more
(`hybridsim.analysis.interval` says under which rules, `dual` why). `lower` is earned by a plan that
knows the future (`schedule`). Both speak of the problem they are given: requests one after another
(`interval`), blocks (`blocks`), or the batches of a timed run (`batches`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybridsim.analysis.dual import Dual, DualResult, minimise
from hybridsim.analysis.interval import (
    BoundRules,
    Insertion,
    Problem,
    interval_problem,
)
from hybridsim.analysis.reward import FloatArray, Reward
from hybridsim.analysis.room import rooms
from hybridsim.analysis.schedule import Schedule, planned
from hybridsim.analysis.windows import Windows
from hybridsim.request import Request

NUM_STEPS = 800
_AMPLE = 0.9  # of the ideal: above it plans are tried that hold states for long


@dataclass(frozen=True, slots=True)
class Bracket:
    """Lower and upper bound of what the best policy earns, as shares of the most there is.

    With rewards in tokens both are token hit rates. `ideal`: the share with unlimited memory.
    `num_steps`: step of the search that gave `upper`.
    """

    capacity_bytes: float
    state_capacity_bytes: float | None
    lower: float
    upper: float
    ideal: float
    num_steps: int

    @property
    def width(self) -> float:
        return self.upper - self.lower


def bound(
    requests: Sequence[Request],
    kv_bytes_per_token: int,
    state_bytes: int,
    capacity_bytes: float,
    *,
    state_capacity_bytes: float | None = None,
    page_tokens: int = 1,
    outputs: bool = True,
    caps_last_token: bool = True,
    insertion: Insertion = "forced",
    num_warmup: int = 0,
    reward: Reward | None = None,
    num_steps: int = NUM_STEPS,
) -> Bracket:
    """The bracket of one trace and one memory; see `BoundRules` for the options.

    capacity_bytes: of the shared pool, or of the KV pool if `state_capacity_bytes` is given.
    For several sizes make the problem once and call `bracket`.
    """
    rules = BoundRules(
        kv_bytes_per_token,
        state_bytes,
        page_tokens,
        outputs=outputs,
        caps_last_token=caps_last_token,
        insertion=insertion,
    )
    problem = interval_problem(requests, rules, num_warmup=num_warmup, reward=reward)
    return bracket(problem, capacity_bytes, state_capacity_bytes, num_steps=num_steps)


def bracket(
    problem: Problem,
    capacity_bytes: float | FloatArray,
    state_capacity_bytes: float | None = None,
    *,
    num_steps: int = NUM_STEPS,
    makes_plans: bool = True,
) -> Bracket:
    """Upper bound from `num_steps` steps on the prices, lower bound from the best of some plans.

    capacity_bytes: may be one number for each interlude between requests, `[num_requests]`.
    makes_plans: False leaves `lower` at 0. O(steps (runs + requests)); deterministic.
    """
    total = problem.total_reward or 1.0
    state_bytes = problem.rules.state_bytes
    memory = rooms(problem.load, state_bytes, capacity_bytes, state_capacity_bytes)
    dual = Dual(problem, memory)
    found = minimise(dual, num_steps=num_steps)
    ideal = dual.mean_best_reward * problem.num_requests
    plans = _plans(dual, found, ideal) if makes_plans else []
    return Bracket(
        memory.kv.scale_bytes,
        state_capacity_bytes,
        max((plan.reward for plan in plans), default=0.0) / total,
        found.bound / total,
        ideal / total,
        found.num_steps,
    )


def bound_of_windows(
    problem: Problem, window_tokens: int, capacity_bytes: float, pool_tokens: float
) -> float:
    """Upper bound where each hit needs a window of KV in a pool of its own, and states are free.

    Running requests take nothing of that pool. Inside a run the price of a window rises ever more
    slowly, since what leaves it above is dearer the deeper it lies, having been held for longer.
    So ends are the best places here, too.
    """
    load = problem.load
    none = np.zeros_like(load.events_states)
    windows = replace(
        problem,
        windows=Windows.of(problem.first, problem.begin_tokens, problem.end_tokens, window_tokens),
        load=replace(load, events_states=none, most_states=none, interludes_states=none),
    )
    return bracket(windows, capacity_bytes, pool_tokens, makes_plans=False).upper


def ideal_share(problem: Problem) -> float:
    """The share that unlimited memory would earn."""
    memory = rooms(problem.load, problem.rules.state_bytes, 0.0)
    best = Dual(problem, memory).mean_best_reward * problem.num_requests
    return best / (problem.total_reward or 1.0)


def _plans(dual: Dual, found: DualResult, ideal: float) -> list[Schedule]:
    """Plans by prices that differ; which of them is best is not known beforehand."""
    good, early = (found.kv, found.states), found.early
    wishes = [(good, False), (early, False)]
    if found.bound > _AMPLE * ideal:
        wishes.append((good, True))
    return [
        planned(
            dual.problem, dual.rooms, dual.choose(*prices).profit, prices[0].rent(dual.problem),
            is_ample=is_ample,
        )
        for prices, is_ample in wishes
    ]  # fmt: skip
