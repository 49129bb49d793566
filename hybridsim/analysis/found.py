"""How much memory a state needs to still be there, if a request touches only what it finds.

What is evicted stays away until somebody asks for it again, so the states that lie above one in
the stack differ from capacity to capacity. Every state has a *threshold*, the least capacity at
which it is there; of the younger states only those whose thresholds lie at or below a capacity
take room in it. So a threshold is the least fixed point of
`C = KV that is younger + state bytes * number of younger states with thresholds <= C`.
"""

import numpy as np

from hybridsim.analysis.passes import NEVER, Passes
from hybridsim.analysis.stack import previous_namer, stack_distances
from hybridsim.request import Int64Array

_GONE = np.iinfo(np.int64).max
_LEAST_ROOM = 4096
_FEW = 3  # states up to which one after another is faster than all at once


def found_distances(
    passes: Passes, kv_bytes: Int64Array, state_bytes: int, named: np.ndarray
) -> Int64Array:
    """Threshold of the state at the end of each pass's node, just before the request comes.

    kv_bytes, named (bool), `[num_passes]`: what the node's KV takes; whether the request asks for
    a state at its end. 0 for passes whose node nobody asked for before. A request touches the
    states that are there on its path; those that it asks for are there at every capacity then.
    O(passes with a state x states younger than theirs) at the speed of numpy.
    """
    base = stack_distances(passes, kv_bytes, kv_bytes)
    rows = np.flatnonzero(named | (previous_namer(passes, named) != NEVER))
    bounds = np.searchsorted(passes.request[rows], np.arange(passes.num_requests + 1)).tolist()
    nodes, owners, sizes, asks = passes.node[rows], passes.previous[rows], base[rows], named[rows]
    place_of = np.full(int(passes.node.max(initial=0)) + 1, NEVER, dtype=np.int64)
    stack = _Stack(passes.num_requests, state_bytes)
    found = np.zeros(len(rows), dtype=np.int64)
    for request in range(passes.num_requests):
        mine = slice(bounds[request], bounds[request + 1])
        places = place_of[nodes[mine]]
        known = places != NEVER
        if known.any():
            places = places[known]
            found[mine][known] = stack.thresholds(owners[mine][known], places, sizes[mine][known])
            stack.levels[places] = _GONE
        new = stack.push(request, np.where(asks[mine], 0, found[mine]))
        place_of[nodes[mine]] = np.arange(new, stack.top)
        if stack.top > stack.sweep_at:
            moved = stack.sweep()
            place_of[place_of != NEVER] = moved[place_of[place_of != NEVER]]
    distances = np.zeros(len(named), dtype=np.int64)
    distances[rows] = found
    return distances


class _Stack:
    """Thresholds of all states, the oldest first; states of one request lie together, root first.

    `levels`: int64; a state that was touched again leaves `_GONE` behind.
    """

    def __init__(self, num_requests: int, state_bytes: int) -> None:
        self.levels = np.full(_LEAST_ROOM, _GONE, dtype=np.int64)
        self.top = 0
        self.sweep_at = _LEAST_ROOM // 2
        self._state_bytes = state_bytes
        self._ends = np.zeros(num_requests, dtype=np.int64)  # place behind a request's own states
        self._last = -1

    def push(self, request: int, levels: Int64Array) -> int:
        """Put a request's states on top; returns the place of the first."""
        start, self.top = self.top, self.top + len(levels)
        if self.top > len(self.levels):
            room = np.full(2 * self.top, _GONE, dtype=np.int64)
            room[:start] = self.levels[:start]
            self.levels = room
        self.levels[start : self.top] = levels
        self._ends[request] = self.top
        self._last = request
        return start

    def thresholds(self, owners: Int64Array, places: Int64Array, sizes: Int64Array) -> Int64Array:
        """The least capacities at which states of one path are still there.

        owners, places, sizes, `[num_states]`, root first: who touched each last, where it lies,
        and the bytes of KV that are not older than it.
        """
        found = np.empty(len(places), dtype=np.int64)
        cuts = np.flatnonzero(np.diff(owners)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(owners)], strict=True):
            younger = self.levels[self._ends[owners[start]] : self.top]
            levels, kv = self.levels[places[start:stop]], sizes[start:stop]
            if stop - start <= _FEW:
                found[start:stop] = self._one_by_one(younger, levels.tolist(), kv.tolist())
            else:
                found[start:stop] = self._together(younger, levels, kv)
        return found

    def _one_by_one(self, younger: Int64Array, levels: list[int], sizes: list[int]) -> list[int]:
        found = []
        for index, (level, kv) in enumerate(zip(levels, sizes, strict=True)):
            capacity = max(level, kv + self._state_bytes)
            while True:
                count = np.count_nonzero(younger <= capacity)
                count += sum(other <= capacity for other in levels[: index + 1])
                needed = kv + self._state_bytes * int(count)
                if needed <= capacity:
                    break
                capacity = needed
            found.append(capacity)
        return found

    def _together(self, younger: Int64Array, levels: Int64Array, sizes: Int64Array) -> Int64Array:
        """As one by one; what `younger` holds is sorted once.

        With m states on the path and the k lowest of the younger ones a state needs
        `size + (m + k) x state bytes`, and that is the fixed point if the next one lies above:
        the first k with `level[k] - k x state bytes > size + m x state bytes`. As m only rises on
        the way up, each round starts from below and jumps over what lies between.
        """
        one = self._state_bytes
        ordered = np.sort(younger[younger != _GONE])
        slack = np.maximum.accumulate(ordered - one * np.arange(len(ordered)))
        highest = np.maximum.accumulate(levels)
        all_own = np.arange(1, len(levels) + 1)
        capacity = np.maximum(levels, sizes + one)
        while True:
            own = all_own.copy()
            rows = np.flatnonzero(highest > capacity)
            there = levels <= capacity[rows, None]
            own[rows] = np.count_nonzero(there & (all_own <= all_own[rows, None]), axis=1)
            needed = sizes + one * (own + np.searchsorted(ordered, capacity, side="right"))
            if (needed <= capacity).all():
                return capacity
            room = sizes + one * own
            jump = room + one * np.searchsorted(slack, room, side="right")
            capacity = np.maximum(capacity, np.maximum(needed, jump))

    def sweep(self) -> Int64Array:
        """Close the gaps; returns where each place has gone. Cost is linear in the places."""
        alive = self.levels[: self.top] != _GONE
        moved = np.concatenate([[0], np.cumsum(alive)])
        self._ends[: self._last + 1] = moved[self._ends[: self._last + 1]]
        kept = self.levels[: self.top][alive]
        self.top = len(kept)
        self.levels[: self.top] = kept
        self.sweep_at = max(_LEAST_ROOM, 2 * self.top)
        return moved[:-1]
