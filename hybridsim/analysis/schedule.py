"""Lower bounds from a plan that knows the future: what some policy could really have earned.

A request takes the resume position of the highest value for which memory is free in every interlude
and at every event, and whose state was computed: the request that passed it last must not itself
have resumed deeper. Where a run does not fit whole, its beginning is taken, with a state inside it.
The plan is legal under the rules of `interval.BoundRules`, so the best policy earns at least as
much.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from hybridsim.analysis.interval import Problem
from hybridsim.analysis.passes import NEVER
from hybridsim.analysis.reward import FloatArray
from hybridsim.analysis.room import Free, Rooms

_MOST_SOURCES = 64  # older requests that are tried as the source of a state


@dataclass(frozen=True, slots=True, order=True)
class Pick:
    """Resume at `end_tokens`, inside or at the end of a run of which `kv_bytes` are held.

    `source`: the request that computed the state, which is held since that one was done.
    """

    run: int
    end_tokens: int
    kv_bytes: int
    reward: float
    source: int


class Schedule:
    """A plan under construction; `picks[t]` is what request t resumes from, if anything."""

    def __init__(self, problem: Problem, rooms: Rooms) -> None:
        self.problem = problem
        self.picks: list[Pick | None] = [None] * problem.num_requests
        self._first = problem.first.tolist()
        self._before = np.concatenate([[0], np.cumsum(problem.kv_bytes)]).tolist()
        self._previous = problem.previous.tolist()
        self._end = problem.end_tokens.tolist()
        self._begin = problem.begin_tokens.tolist()
        self._reward = problem.reward.tolist()
        # Nobody may resume deeper than the states that others take from it.
        self._wanted: list[list[int]] = [[] for _ in range(problem.num_requests)]
        self._kv = Free(rooms.kv)
        self._states = self._kv if rooms.states is None else Free(rooms.states)
        self._last_pass = problem.last_pass.tolist()
        self._before_pass = problem.passes.previous_pass().tolist()
        self._passed_by = problem.passes.request.tolist()
        self._sigma = problem.rules.state_bytes
        self._num_sources = 1
        self._unit_tokens = problem.unit_tokens.tolist()
        self._left = problem.left.tolist()

    @property
    def reward(self) -> float:
        """What the plan earns."""
        return sum(pick.reward for pick in self.picks if pick is not None)

    def fill(
        self, values: FloatArray, rent: FloatArray, order: Iterable[int], num_sources: int
    ) -> None:
        """One pass: each request in turn takes, or changes to, its best pick of positive value.

        values, `[num_runs]`: of resuming at each run's end; rent, `[num_runs]`: what it counts for
        a byte of the run's KV. num_sources: how many of the last requests that passed a position
        may have computed its state; states of older ones are held longer. O(runs + interludes).
        """
        self._num_sources = num_sources
        worth, per_byte = values.tolist(), rent.tolist()
        for request in order:
            if self._first[request] < self._first[request + 1]:
                self._improve(request, worth, per_byte)

    def _improve(self, request: int, values: list[float], rent: list[float]) -> None:
        held = self.picks[request]
        first, last = self._first[request], self._first[request + 1]
        heap = [
            (-values[run], run, self._whole(run)) for run in range(first, last) if values[run] > 0
        ]
        heapify(heap)
        if held is not None:
            if heap and heap[0][1] == held.run and held.end_tokens == self._end[held.run]:
                return
            self._give(request, held)
            heappush(heap, (-self._value(held, values, rent), held.run, held))
        free = self._free_pieces(request) if heap else []
        while heap:
            _, run, pick = heappop(heap)
            most_tokens = self._most_tokens(request, run, free)
            if pick.end_tokens <= most_tokens:
                sourced = self._sourced(request, pick)
                if sourced is not None:
                    self._take(request, sourced)
                    return
            is_whole = pick.end_tokens == self._end[run]
            if is_whole and self._begin[run] < most_tokens < pick.end_tokens:
                part = self._part(run, most_tokens)
                value = self._value(part, values, rent)
                if value > 0:
                    heappush(heap, (-value, run, part))

    def _whole(self, run: int) -> Pick:
        held = self._before[run + 1] - self._before[run]
        return Pick(run, self._end[run], held, self._reward[run], self._previous[run])

    def _part(self, run: int, end_tokens: int) -> Pick:
        """A pick inside a run; rewards of requests in the warm-up stay 0."""
        if end_tokens >= self._end[run]:
            return self._whole(run)
        units = (end_tokens - self._begin[run]) // self._unit_tokens[run]
        kv_bytes = units * self.problem.unit_bytes
        earns = self._reward[run] > 0
        reward = self.problem.reward_of.at(end_tokens) if earns else 0.0
        return Pick(run, end_tokens, kv_bytes, reward, self._previous[run])

    def _value(self, pick: Pick, values: list[float], rent: list[float]) -> float:
        run = pick.run
        not_held = self._before[run + 1] - self._before[run] - pick.kv_bytes
        return values[run] - (self._reward[run] - pick.reward) + rent[run] * not_held

    def _sourced(self, request: int, pick: Pick) -> Pick | None:
        """The pick with the latest request that computed its state and could keep it till now.

        Where states take no memory all that were ever computed are there.
        """
        if not self._sigma:
            return pick
        for source in self._sources(request, self._last_pass[pick.run]):
            theirs = self.picks[source]
            if theirs is None or theirs.end_tokens <= pick.end_tokens:
                return replace(pick, source=source) if self._keeps(request, pick, source) else None
        return None

    def _sources(self, request: int, at: int) -> Iterator[int]:
        """The latest requests that passed a run to its end and were done before this one starts."""
        num_left = self._num_sources
        while num_left and (at := self._before_pass[at]) != NEVER:
            source = self._passed_by[at]
            if self._left[source] < request:
                num_left -= 1
                yield source

    def _keeps(self, request: int, pick: Pick, source: int) -> bool:
        """Whether a state from an older request fits until the run's KV comes to be held too."""
        last, since = self._previous[pick.run], self._left[source]
        return since == last or self._states.least(since, last, request) >= self._sigma

    def _most_tokens(self, request: int, run: int, free: list[float]) -> int:
        """How deep into the run the request may resume: by memory, and by what others take."""
        first = self._first[request]
        state = self._sigma if self._states is self._kv else 0
        above = self._before[run]
        room = min(
            left - (above - self._before[first + index]) - state
            for index, left in enumerate(free[: run - first + 1])
        )
        if (
            self._states is not self._kv
            and self._states.least(self._previous[run], request, request) < self._sigma
        ):
            room = -1
        if room < 0:
            return -1
        tokens, begin, unit_tokens = self._end[run], self._begin[run], self._unit_tokens[run]
        if self.problem.unit_bytes:
            tokens = min(tokens, begin + int(room) // self.problem.unit_bytes * unit_tokens)
        wanted = min(self._wanted[request], default=tokens)
        whole = begin + (wanted - begin) // unit_tokens * unit_tokens
        return tokens if wanted >= tokens else whole

    def _pieces(self, request: int, run: int) -> list[tuple[int, int]]:
        """Stretches of interludes `[start, stop)` over which the load is constant, latest first."""
        starts = self._previous[self._first[request] : run + 1]
        return list(zip(starts, [request, *starts[:-1]], strict=True))

    def _free_pieces(self, request: int) -> list[float]:
        pieces = self._pieces(request, self._first[request + 1] - 1)
        return [self._kv.least(start, stop, request) for start, stop in pieces]

    def _take(self, request: int, pick: Pick) -> None:
        self._move(request, pick, 1)
        if self._sigma:
            self._wanted[pick.source].append(pick.end_tokens)
        self.picks[request] = pick

    def _give(self, request: int, pick: Pick) -> None:
        self._move(request, pick, -1)
        if self._sigma:
            self._wanted[pick.source].remove(pick.end_tokens)
        self.picks[request] = None

    def _move(self, request: int, pick: Pick, sign: int) -> None:
        is_shared = self._states is self._kv
        first, total = self._first[request], self._before[pick.run] + pick.kv_bytes
        state = self._sigma if is_shared else 0
        for index, (start, stop) in enumerate(self._pieces(request, pick.run)):
            load = total - self._before[first + index] + state
            self._kv.take(start, stop, request, sign * load)
        since = self._previous[pick.run]
        if not is_shared:
            self._states.take(since, request, request, sign * self._sigma)
        if self._sigma and self._left[pick.source] < since:
            self._states.take(self._left[pick.source], since, request, sign * self._sigma)


def planned(
    problem: Problem, rooms: Rooms, profit: FloatArray, rent: FloatArray, *, is_ample: bool
) -> Schedule:
    """A plan by profit, most profitable request first, then improved by reward alone.

    profit, rent, `[num_runs]`: reward less rent at each run's end at some prices, rent of a byte.
    is_ample: look for states computed long ago at once, which is best where there is plenty of
    memory; else only once all requests have had their turn.
    """
    best = np.full(problem.num_requests, -np.inf)
    np.maximum.at(best, problem.request, profit)
    order = np.argsort(-best, kind="stable").tolist()
    num_sources = _MOST_SOURCES if is_ample else 1
    schedule = Schedule(problem, rooms)
    schedule.fill(profit, rent, order, num_sources)
    schedule.fill(problem.reward, np.zeros_like(rent), order, num_sources)
    schedule.fill(problem.reward, np.zeros_like(rent), order, _MOST_SOURCES)
    return schedule
