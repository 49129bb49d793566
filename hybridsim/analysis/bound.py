"""The ceiling: how much of a trace any policy can hit in so much memory, from above and below.

`upper` is proven: no placement of states, no block size, no admission and no eviction earns more
(`hybridsim.analysis.interval` says under which rules, `dual` why). `lower` is earned by a plan that
knows the future (`schedule`). Both speak of requests served one after another, as in replay mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hybridsim.analysis.dual import Dual, minimise
from hybridsim.analysis.interval import (
    BoundRules,
    Insertion,
    Problem,
    interval_problem,
    rooms,
)
from hybridsim.analysis.reward import Reward
from hybridsim.analysis.schedule import planned
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
    capacity_bytes: float,
    state_capacity_bytes: float | None = None,
    *,
    num_steps: int = NUM_STEPS,
) -> Bracket:
    """Upper bound from `num_steps` steps on the prices, lower bound from the best of some plans.

    O(steps (runs + requests)); deterministic.
    """
    total = problem.total_reward or 1.0
    memory = rooms(problem, capacity_bytes, state_capacity_bytes)
    dual = Dual(problem, memory)
    found = minimise(dual, num_steps=num_steps)
    ideal = dual.mean_best_reward * problem.num_requests
    is_ample = found.bound > _AMPLE * ideal
    plans = [
        planned(
            problem, memory, dual.choose(*prices).profit, prices[0].rent(problem), is_ample=ample
        )
        for prices, ample in (
            ((found.kv, found.states), False),
            (found.early, False),
            *([((found.kv, found.states), True)] if is_ample else []),
        )
    ]
    return Bracket(
        capacity_bytes,
        state_capacity_bytes,
        max(plan.reward for plan in plans) / total,
        found.bound / total,
        ideal / total,
        found.num_steps,
    )
