"""Spans of equal size with little memory: prompts that extend each other share their arrays."""

import numpy as np

from hybridsim.request import Int64Array, Spans


class GridEnds:
    """Hands out `[step, 2 step, ..]` as views of one array, which grows by doubling."""

    def __init__(self, step_tokens: int) -> None:
        self.step_tokens = step_tokens
        self._all: Int64Array = np.empty(0, dtype=np.int64)

    def ends(self, count: int) -> Int64Array:
        """The first `count` multiples of the step, `[count]`, read-only."""
        if count > len(self._all):
            size = max(1024, 2 * len(self._all), count)
            self._all = np.arange(1, size + 1, dtype=np.int64) * self.step_tokens
            self._all.flags.writeable = False
        return self._all[:count]

    def spans(self, ids: Int64Array, num_tokens: int) -> Spans:
        """Blocks of one step each. A last id that stands for fewer tokens ends at `num_tokens`;
        tokens behind the last whole block and without an id stay unknown."""
        if len(ids) * self.step_tokens <= num_tokens:
            return Spans(ids, self.ends(len(ids)), num_tokens)
        ends = self.ends(len(ids)).copy()
        ends[-1] = num_tokens
        return Spans(ids, ends, num_tokens)


def shared_storage(sequences: list[Int64Array]) -> list[Int64Array]:
    """The same sequences, where one that begins a later one is a view of it.

    Sessions mostly append, so looking from the last to the first and at a few candidates finds
    nearly all of it. O(total length) compares.
    """
    shared: list[Int64Array] = []
    owners: list[Int64Array] = []
    for sequence in reversed(sequences):
        owner = next((o for o in owners if _begins(sequence, o)), None)
        if owner is None:
            owner = sequence
            owners = [owner, *owners[:3]]
        shared.append(owner[: len(sequence)])
    return shared[::-1]


def _begins(sequence: Int64Array, longer: Int64Array) -> bool:
    length = len(sequence)
    return length <= len(longer) and bool(np.array_equal(sequence, longer[:length]))


class ChainCheck:
    """Counts ids that occur behind more than one predecessor, or at two places.

    Where there are none, equal ids mean equal prefixes. Ids must be small whole numbers.
    """

    _NONE, _START = -1, -2

    def __init__(self) -> None:
        self._before: Int64Array = np.empty(0, dtype=np.int64)
        self._at: Int64Array = np.empty(0, dtype=np.int64)
        self.num_violations = 0

    def add(self, ids: Int64Array) -> None:
        """Take in one prompt's ids. Ids of 2^24 and above are left out (too large a table)."""
        if not len(ids) or int(ids.max()) >= 2**24:
            return
        self._grow(int(ids.max()) + 1)
        before = np.concatenate([[self._START], ids[:-1]])
        places = np.arange(len(ids))
        known, at = self._before[ids], self._at[ids]
        strange = (known != self._NONE) & ((known != before) | (at != places))
        self.num_violations += int(np.count_nonzero(strange))
        new = known == self._NONE
        self._before[ids[new]] = before[new]
        self._at[ids[new]] = places[new]

    def _grow(self, size: int) -> None:
        have = len(self._before)
        if size > have:
            more = np.full(max(size, 2 * have) - have, self._NONE, dtype=np.int64)
            self._before = np.concatenate([self._before, more])
            self._at = np.concatenate([self._at, more])

    def sentence(self) -> str:
        """What was found, for the trace's assumptions."""
        if not self.num_violations:
            return "Block ids are chained: no id occurs behind two predecessors or at two places."
        return (
            f"Block ids are not chained: {self.num_violations} occurrences follow another "
            "predecessor or stand at another place. Prefixes are matched block by block."
        )
