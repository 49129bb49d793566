"""Upper bounds from prices: the Lagrangian dual of the interval problem.

Give every byte a price per interlude (lambda) and, where running requests need room, per event
(mu). Then requests no longer compete: each resumes where reward less rent is highest, or nowhere,
and
    g = sum over interludes of capacity * lambda + sum over events of room * mu + sum of best values
is an upper bound of what any policy earns, *for every choice of prices >= 0*. The least g is the
optimum of the linear relaxation, since what is left for each request is an integral choice.
Projected Adam looks for low prices of good use; a bad search only makes the bound looser.
"""

from dataclasses import dataclass, replace

import numpy as np

from hybridsim.analysis.interval import Problem
from hybridsim.analysis.reward import FloatArray
from hybridsim.analysis.room import Room, Rooms
from hybridsim.request import Int64Array

# Tuned on the chat and the conversation trace at 2 to 32 GB; 800 steps end within 0.1 % of the LP.
_FIRST_RATE = 2.0
_LAST_SHARE = 0.01


@dataclass(slots=True, eq=False)
class Prices:
    """Per byte, `[num_requests]` each: over interlude s, and over event t."""

    interludes: FloatArray
    events: FloatArray

    @staticmethod
    def zero(num_requests: int) -> "Prices":
        return Prices(np.zeros(num_requests), np.zeros(num_requests))

    def rent(self, problem: Problem) -> FloatArray:
        """Price of holding a byte from a run's last pass to its request, `[num_runs]`.

        Over the interludes from one to the other, and the events strictly between them.
        """
        interludes = np.concatenate([[0.0], np.cumsum(self.interludes)])
        events = np.concatenate([[0.0], np.cumsum(self.events)])
        now, last = problem.request, problem.previous
        return interludes[now] - interludes[last] + events[now] - events[_next_event(problem)]


def _next_event(problem: Problem) -> Int64Array:
    """First event for which a run is held, `[num_runs]`; that of its own request ends it."""
    return np.minimum(problem.previous + 1, problem.request)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """What every request does at given prices.

    `profit`, `[num_runs]`: reward less rent of resuming at each run's end. `bound`: g.
    `held`, `[num_runs]`: the run's KV is held; `resumed`: indices of runs at whose end a request
    resumes.
    """

    bound: float
    profit: FloatArray
    held: np.ndarray
    resumed: np.ndarray


class Dual:
    """g and its subgradient for one problem and its rooms. O(runs + requests) each time."""

    def __init__(self, problem: Problem, rooms: Rooms) -> None:
        self.problem, self.rooms = problem, rooms
        self._begins = problem.first[:-1][np.diff(problem.first) > 0]
        self._counts = np.diff(np.append(self._begins, len(problem.request)))
        self._index = np.arange(len(problem.request))

    @property
    def mean_best_reward(self) -> float:
        """Of all requests, what they would earn with unlimited memory."""
        if not len(self._begins):
            return 0.0
        best = np.maximum.reduceat(self.problem.reward, self._begins)
        return float(best.sum()) / self.problem.num_requests

    def choose(self, kv: Prices, states: Prices) -> Choice:
        """The best choices at these prices; for a shared room pass the same prices twice."""
        problem = self.problem
        rent = kv.rent(problem)
        state_rent = rent if states is kv else states.rent(problem)
        kv_costs = np.concatenate([[0.0], np.cumsum(problem.kv_bytes * rent)])
        paid = kv_costs[1:] - np.repeat(kv_costs[self._begins], self._counts)
        profit = problem.reward - paid - self._state_costs(state_rent)
        best = np.maximum.reduceat(profit, self._begins) if len(profit) else profit
        best_of = np.repeat(best, self._counts)
        at = np.where((profit == best_of) & (best_of > 0), self._index, -1)
        deepest = np.maximum.reduceat(at, self._begins) if len(at) else at
        held = self._index <= np.repeat(deepest, self._counts)
        bound = float(np.maximum(best, 0.0).sum()) + _worth(kv, self.rooms.kv)
        if self.rooms.states is not None:
            bound += _worth(states, self.rooms.states)
        return Choice(bound, profit, held, deepest[deepest >= 0])

    def slack(self, choice: Choice) -> list[Prices]:
        """Room less use over interludes and events, for each kind of room: the subgradient of g."""
        problem, resumed = self.problem, choice.resumed
        use = np.where(choice.held, problem.kv_bytes, 0).astype(np.float64)
        if self.rooms.states is None:
            use[resumed] += problem.rules.state_bytes
            return [self._left(self.rooms.kv, use)]
        states = np.zeros(len(use))
        states[resumed] = problem.rules.state_bytes
        if problem.windows is not None:
            states = problem.windows.use(resumed)
        return [self._left(self.rooms.kv, use), self._left(self.rooms.states, states)]

    def _state_costs(self, rent: FloatArray) -> FloatArray:
        """What is paid for the state, or the window, at each run's end."""
        if self.problem.windows is not None:
            return self.problem.windows.costs(rent)
        return self.problem.rules.state_bytes * rent

    def _left(self, room: Room, use: FloatArray) -> Prices:
        """What each interlude and event has left once every run takes its `use`."""
        count = self.problem.num_requests
        used = np.flatnonzero(use)
        now, last, size = self.problem.request[used], self.problem.previous[used], use[used]
        ends = np.bincount(now, size, count + 1)
        interludes = np.cumsum(np.bincount(last, size, count + 1) - ends)[:count]
        begins = np.bincount(_next_event(self.problem)[used], size, count + 1)
        events = np.cumsum(begins - ends)[:count]
        events_left = np.where(room.is_bound, room.events_bytes - events, 0.0)
        return Prices(room.interludes_bytes - interludes, events_left)


def _is_enough(left: Prices) -> bool:
    return bool((left.interludes >= 0).all() and (left.events >= 0).all())


def _worth(prices: Prices, room: Room) -> float:
    # No dot product: BLAS would start threads for it, which costs more than the sum.
    interludes = float((prices.interludes * room.interludes_bytes).sum())
    return interludes + float((prices.events * room.events_bytes).sum())


@dataclass(frozen=True, slots=True, eq=False)
class DualResult:
    """The lowest bound seen, the prices that gave it, and at which step.

    `early`: the prices (KV, states) after an eighth of the steps; rough ones make other plans.
    """

    bound: float
    kv: Prices
    states: Prices
    num_steps: int
    early: tuple[Prices, Prices]


def minimise(
    dual: Dual,
    *,
    num_steps: int = 800,
) -> DualResult:
    """Projected Adam on the prices, from zero. Deterministic."""
    kinds = 1 if dual.rooms.states is None else 2
    count = dual.problem.num_requests
    size = [dual.rooms.kv.scale_bytes]
    if dual.rooms.states is not None:
        size.append(dual.rooms.states.scale_bytes)
    size = [max(scale, 1.0) for scale in size]
    # In rewards per full room and interlude: a step of one size then fits every problem.
    unit = dual.mean_best_reward or 1.0
    search = _Adam(np.zeros((kinds, 2, count)), unit)
    best: DualResult | None = None
    early = (Prices.zero(count), Prices.zero(count))
    for step in range(num_steps):
        kinds_prices = [Prices(search.at[k, 0] / size[k], search.at[k, 1] / size[k])
                        for k in range(kinds)]  # fmt: skip
        choice = dual.choose(kinds_prices[0], kinds_prices[-1])
        if step <= num_steps // 8:
            early = (kinds_prices[0], kinds_prices[-1])
        if best is None or choice.bound < best.bound:
            best = DualResult(choice.bound, kinds_prices[0], kinds_prices[-1], step + 1, early)
        slack = dual.slack(choice)
        if step == 0 and all(_is_enough(left) for left in slack):
            break  # all rewards fit at once: prices of zero are optimal
        gradient = np.stack([
            np.stack([left.interludes, left.events]) / size[k] for k, left in enumerate(slack)
        ])  # fmt: skip
        search.step(gradient, step / num_steps)
    assert best is not None
    return replace(best, early=early)


class _Adam:
    """Adam with a falling rate, projected onto prices >= 0."""

    def __init__(self, at: FloatArray, unit: float) -> None:
        self.at = at
        self._unit = unit
        self._mean = np.zeros_like(at)
        self._square = np.zeros_like(at)
        self._count = 0

    def step(self, gradient: FloatArray, progress: float) -> None:
        """One step; `progress` runs from 0 to 1 and shortens it."""
        self._count += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.1 * (gradient * gradient - self._square)
        correction = 1 - 0.9**self._count
        mean, square = self._mean / correction, self._square / correction
        rate = self._unit * _FIRST_RATE * _LAST_SHARE**progress
        self.at -= rate * mean / (np.sqrt(square) + 1e-12)
        np.maximum(self.at, 0.0, out=self.at)
