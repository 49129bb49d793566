"""The LRU stack of single blocks, for samples: how many blocks were touched since."""


class BlockStack:
    """Distances of single blocks: the blocks touched since, by a Fenwick tree over time.

    A sampled block stands for `weight` blocks, a first block for itself. Time is compacted when it
    has run out, so memory follows the blocks alive, not the trace.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._time_of: dict[int, int] = {}
        self._weight_at: dict[int, float] = {}
        self._size = 1 << 16
        self._tree = [0.0] * (self._size + 1)
        self._now = 0
        self._alive = 0.0

    def distances(self, path: list[int], is_first: list[bool]) -> list[float | None]:
        """For each block of a path its distance, itself as one, before the path is touched."""
        if self._now + len(path) > self._size:
            self._compact(len(path))
        found: list[float | None] = []
        for block in path:
            time = self._time_of.get(block)
            found.append(None if time is None else self._alive - self._older(time) + 1.0)
        for block, first in zip(reversed(path), reversed(is_first), strict=True):
            self._touch(block, 1.0 if first else self._weight)  # so the root is the most recent
        return found

    def _touch(self, block: int, weight: float) -> None:
        time = self._time_of.get(block)
        if time is not None:
            self._add(time, -self._weight_at.pop(time))
        self._now += 1
        self._time_of[block] = self._now
        self._weight_at[self._now] = weight
        self._add(self._now, weight)

    def _older(self, time: int) -> float:
        """Blocks whose last touch is at or before `time`."""
        count = 0.0
        while time > 0:
            count += self._tree[time]
            time &= time - 1
        return count

    def _add(self, time: int, amount: float) -> None:
        self._alive += amount
        while time <= self._size:
            self._tree[time] += amount
            time += time & -time

    def _compact(self, room: int) -> None:
        order = sorted(self._time_of.items(), key=lambda item: item[1])
        weights = [self._weight_at[time] for _, time in order]
        while self._size < 2 * (len(order) + room):
            self._size *= 2
        self._tree = [0.0] * (self._size + 1)
        self._now, self._alive = 0, 0.0
        self._time_of, self._weight_at = {}, {}
        for (block, _), weight in zip(order, weights, strict=True):
            self._touch(block, weight)
