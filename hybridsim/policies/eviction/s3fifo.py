"""S3-FIFO."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from hybridsim.errors import UserError
from hybridsim.policies.base import (
    Candidates,
    Evicted,
    FloatArray,
    Resident,
    ScanningPolicy,
)
from hybridsim.policies.eviction.informed import Informed
from hybridsim.policies.eviction.prefix_name import prefix_name
from hybridsim.policies.eviction.scoring import joined, parted

MAX_USES = 3  # a two-bit counter


class _Note(NamedTuple):
    """Place in a queue: in the main one or the small one, since when, uses since (at most 3)."""

    is_main: bool
    entry: int
    uses: int


@dataclass
class S3FIFO(Informed, ScanningPolicy):
    """A small FIFO for what is new, a main FIFO for what was used again, a ghost of what left.

    While the small queue holds more than `small_share` of the bytes its oldest leaves, into the
    main queue if it was used more than once since, else out, its name into the ghost. Else the
    oldest of the main queue leaves, unless it was used since: it goes to the back, one use less.
    What the ghost knows enters the main queue.
    """

    num_values: ClassVar[int] = 4  # a note's fields and the size in bytes
    source: ClassVar[str] = "Yang et al., SOSP 2023"
    deviation: ClassVar[str] = (
        "Queues hold the candidates of the moment (leaves and unlocked states) as whole objects; "
        "the ghost remembers as many names as the main queue has candidates."
    )

    small_share: float = 0.1

    _entries: int = field(default=0, init=False)
    _ghost: OrderedDict[Hashable, None] = field(default_factory=OrderedDict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.small_share < 1:
            raise UserError(
                "cache.eviction.small_share", f"{self.small_share} is not allowed; > 0 and < 1"
            )

    @property
    def refreshes_path(self) -> bool:
        return False

    def on_kv_use(self, item: Resident, now: int) -> None:
        item.kv_note = self._used(item.kv_note, item, item.start + 1, "kv")

    def on_state_use(self, item: Resident, now: int) -> None:
        note = None if item.state_created == now else item.state_note
        item.state_note = self._used(note, item, item.end, "state")

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        kind = "kv" if evicted.is_kv else "state"
        position = evicted.start + 1 if evicted.is_kv else evicted.end
        self._ghost[_name(evicted.item, position, kind)] = None

    def kv_values(self, item: Resident) -> tuple[float, ...]:
        return (*item.kv_note, item.num_tokens * self._given().kv_bytes_per_token)

    def state_values(self, item: Resident) -> tuple[float, ...]:
        return (*item.state_note, self._given().state_bytes)

    def scores(self, kv: Candidates, states: Candidates, now: int) -> tuple[FloatArray, FloatArray]:
        """0 for the victim, 1 for all others; moves queue places on the way to it.

        Every turn either finds the victim or takes a use away, so this ends. No two candidates
        have one entry: only nodes split from each other do, and one of these is no leaf.
        """
        values = joined(kv, states)
        is_main, entries, uses, num_bytes = values
        scores = np.ones(values.shape[1])
        while len(scores):
            num_main = np.count_nonzero(is_main)
            small_bytes = num_bytes @ (1 - is_main)
            is_crowded = small_bytes > self.small_share * num_bytes.sum()
            from_small = num_main < len(scores) and (is_crowded or not num_main)
            row = int(np.where(is_main != from_small, entries, np.inf).argmin())
            if uses[row] <= (1 if from_small else 0):
                self._forget(int(num_main))
                scores[row] = 0
                break
            left = 0 if from_small else int(uses[row]) - 1
            values[:3, row] = self._moved(kv, states, row, left)
        return parted(scores, len(kv))

    def _moved(self, kv: Candidates, states: Candidates, row: int, uses: int) -> _Note:
        """Move the candidate in `row` of both to the back of the main queue."""
        self._entries += 1
        note = _Note(is_main=True, entry=self._entries, uses=uses)
        if row < len(kv):
            kv.items[row].kv_note = note
            kv.values[:3, row] = note
        else:
            states.items[row - len(kv)].state_note = note
            states.values[:3, row - len(kv)] = note
        return note

    def _forget(self, num_kept: int) -> None:
        while len(self._ghost) > max(num_kept, 1):
            self._ghost.popitem(last=False)

    def _used(self, note: _Note | None, item: Resident, position: int, kind: str) -> _Note:
        if note is not None:
            return note._replace(uses=min(note.uses + 1, MAX_USES))
        self._entries += 1
        name = _name(item, position, kind)
        is_known = name in self._ghost
        self._ghost.pop(name, None)
        return _Note(is_known, self._entries, 0)


def _name(item: Resident, position: int, kind: str) -> Hashable:
    assert item.last_user is not None
    return kind, prefix_name(item.last_user, position)
