"""S3-FIFO."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from hybridsim.errors import UserError
from hybridsim.policies.base import Evicted, FloatArray, Resident, ScanningPolicy, Setting
from hybridsim.policies.eviction.prefix_name import prefix_name

MAX_USES = 3  # a two-bit counter


class _Note(NamedTuple):
    """Place in a queue: in the main one or the small one, since when, uses since (at most 3)."""

    is_main: bool
    entry: int
    uses: int


class _Candidate(NamedTuple):
    item: Resident
    is_kv: bool
    size_bytes: int

    @property
    def note(self) -> _Note:
        return self.item.kv_note if self.is_kv else self.item.state_note

    def write(self, note: _Note) -> None:
        if self.is_kv:
            self.item.kv_note = note
        else:
            self.item.state_note = note


@dataclass
class S3FIFO(ScanningPolicy):
    """A small FIFO for what is new, a main FIFO for what was used again, a ghost of what left.

    While the small queue holds more than `small_share` of the bytes its oldest leaves, into the
    main queue if it was used more than once since, else out, its name into the ghost. Else the
    oldest of the main queue leaves, unless it was used since: it goes to the back, one use less.
    What the ghost knows enters the main queue.
    """

    needs_setting: ClassVar[bool] = True
    source: ClassVar[str] = "Yang et al., SOSP 2023"
    deviation: ClassVar[str] = (
        "Queues hold the candidates of the moment (leaves and unlocked states) as whole objects; "
        "the ghost remembers as many names as the main queue has candidates."
    )

    small_share: float = 0.1

    _setting: Setting | None = field(default=None, init=False, repr=False)
    _entries: int = field(default=0, init=False)
    _ghost: OrderedDict[bytes, None] = field(default_factory=OrderedDict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.small_share < 1:
            raise UserError(
                "cache.eviction.small_share", f"{self.small_share} is not allowed; > 0 and < 1"
            )

    @property
    def refreshes_path(self) -> bool:
        return False

    def prepare(self, setting: Setting) -> None:
        self._setting = setting

    def on_kv_use(self, item: Resident, now: int) -> None:
        item.kv_note = self._used(item.kv_note, item, item.start + 1, "kv")

    def on_state_use(self, item: Resident, now: int) -> None:
        note = None if item.state_created == now else item.state_note
        item.state_note = self._used(note, item, item.end, "state")

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        kind = "kv" if evicted.is_kv else "state"
        position = evicted.start + 1 if evicted.is_kv else evicted.end
        self._ghost[_name(evicted.item, position, kind)] = None

    def scores(
        self, kv_items: Sequence[Resident], state_items: Sequence[Resident], now: int
    ) -> tuple[FloatArray, FloatArray]:
        """0 for the victim, 1 for all others; moves queue places on the way to it."""
        candidates = [*self._sized(kv_items, is_kv=True), *self._sized(state_items, is_kv=False)]
        scores = np.ones(len(candidates))
        if candidates:
            scores[self._victim(candidates)] = 0
        return scores[: len(kv_items)], scores[len(kv_items) :]

    def _sized(self, items: Sequence[Resident], *, is_kv: bool) -> list[_Candidate]:
        assert self._setting is not None, "prepare was not called"
        per_token, state_bytes = self._setting.kv_bytes_per_token, self._setting.state_bytes
        return [_Candidate(x, is_kv, x.num_tokens * per_token if is_kv else state_bytes)
                for x in items]  # fmt: skip

    def _victim(self, candidates: Sequence[_Candidate]) -> int:
        """Every turn either finds the victim or takes a use away, so this ends."""
        total_bytes = sum(x.size_bytes for x in candidates)
        while True:
            small = [row for row, x in enumerate(candidates) if not x.note.is_main]
            main = [row for row, x in enumerate(candidates) if x.note.is_main]
            small_bytes = sum(candidates[row].size_bytes for row in small)
            from_small = small and (small_bytes > self.small_share * total_bytes or not main)
            row = min(small if from_small else main, key=lambda row: _age(candidates[row]))
            uses = candidates[row].note.uses
            if uses <= (1 if from_small else 0):
                self._forget(len(main))
                return row
            self._entries += 1
            left = 0 if from_small else uses - 1
            candidates[row].write(_Note(is_main=True, entry=self._entries, uses=left))

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


def _age(candidate: _Candidate) -> tuple[int, int, bool]:
    """Oldest entry first; of one entry (a node that was split) the deepest, a state before KV."""
    return (candidate.note.entry, -candidate.item.end, candidate.is_kv)


def _name(item: Resident, position: int, kind: str) -> bytes:
    assert item.last_user is not None
    return kind.encode() + prefix_name(item.last_user, position)
