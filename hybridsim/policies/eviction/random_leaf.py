"""Randomised marking on leaves."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hybridsim.policies.base import Evicted, Priority, RankingPolicy, Resident, Setting


@dataclass
class RandomLeaf(RankingPolicy):
    """Evict a random unmarked leaf; a use marks. When all are marked, all marks are wiped.

    A mark is the number of the phase in which it was set; what lacks the present one is unmarked.
    Touching a node touches its whole path, so no unmarked node ever hides below a marked one.
    """

    needs_setting: ClassVar[bool] = True
    source: ClassVar[str] = "Randomised leaf tokens (arXiv 2601.18999); marking: Fiat et al. 1991"
    deviation: ClassVar[str] = (
        "The draw is made when an object is used, one for the whole leaf rather than each token. "
        "A split pool has phases of its own for KV and for states."
    )

    _rng: np.random.Generator | None = field(default=None, init=False, repr=False)
    _shared: bool = field(default=False, init=False)
    _phases: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0}, init=False)

    def prepare(self, setting: Setting) -> None:
        self._rng, self._shared = setting.rng, setting.shared

    def on_kv_use(self, item: Resident, now: int) -> None:
        item.kv_note = self._mark(item.kv_note, is_kv=True)

    def on_state_use(self, item: Resident, now: int) -> None:
        item.state_note = self._mark(item.state_note, is_kv=False)

    def kv_priority(self, item: Resident) -> Priority:
        return item.kv_note

    def state_priority(self, item: Resident) -> Priority:
        return item.state_note

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        pool = evicted.is_kv or self._shared
        if evicted.priority[0] == self._phases[pool]:
            self._phases[pool] += 1  # only marked ones were left: a new phase

    def _mark(self, note: Priority | None, *, is_kv: bool) -> Priority:
        """The mark of the present phase; one set in this phase already stays as it is."""
        assert self._rng is not None, "prepare was not called"
        phase = self._phases[is_kv or self._shared]
        if note is not None and note[0] == phase:
            return note
        return (phase, float(self._rng.random()))
