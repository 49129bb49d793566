"""Least hit density."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hybridsim.policies.base import (
    Candidates,
    Evicted,
    FloatArray,
    Resident,
    ScanningPolicy,
)
from hybridsim.policies.eviction.informed import Informed
from hybridsim.policies.make import at_least

NUM_AGES = 48  # geometric bins: 4 to an octave of ticks
_EDGES = 2.0 ** (np.arange(NUM_AGES + 1) / 4) - 1  # bin a holds ages in [_EDGES[a], _EDGES[a + 1])
_MIDDLES = (_EDGES[:-1] + _EDGES[1:]) / 2
# The last bin holds all ages from 2 ** (47 / 4) - 1 on, so a table this long knows every age's.
_OLDEST = 4095
_BIN_OF_AGE = np.minimum(4 * np.log2(np.arange(_OLDEST + 1) + 1.0), NUM_AGES - 1).astype(np.int64)


def hit_density(hits: FloatArray, evictions: FloatArray) -> FloatArray:
    """Hits still to come over the lifetime still to come, given the age now reached, [ages].

    hits, evictions: events at each age. An event at age b costs b - a of space-time from age a.
    Where no event is left the density of the youngest such age is carried on.
    """
    events = hits + evictions
    hits_left = np.cumsum(hits[::-1])[::-1]
    events_left = np.cumsum(events[::-1])[::-1]
    lifetimes = np.cumsum((events * _MIDDLES)[::-1])[::-1] - _EDGES[:-1] * events_left
    return np.divide(hits_left, lifetimes, out=np.zeros_like(hits_left), where=lifetimes > 0)


@dataclass
class LHD(Informed, ScanningPolicy):
    """Evict the lowest expected hits per byte and tick still to be lived, given class and age.

    Class: KV or state, by the number of uses so far (1, 2, 3, 4 or more). Ages are ticks since
    the last use; what ages led to hits and to evictions is counted and fades by `fade` every
    `events` events. Until the first count an object's density is 1 / age.
    """

    num_values: ClassVar[int] = 3
    source: ClassVar[str] = "Beckmann, Chen, Cidon, NSDI 2018"
    deviation: ClassVar[str] = (
        "All candidates are scored rather than 32 random ones; age bins are geometric; no "
        "explorers. A leaf's KV is one object, of its present size."
    )

    events: int = 1000
    fade: float = 0.9

    _hits: FloatArray = field(default_factory=lambda: np.zeros((8, NUM_AGES)), init=False)
    _evictions: FloatArray = field(default_factory=lambda: np.zeros((8, NUM_AGES)), init=False)
    _densities: FloatArray = field(
        default_factory=lambda: np.tile(1 / (_MIDDLES + 1), (8, 1)), init=False, repr=False
    )
    _num_events: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        at_least("cache.eviction.events", self.events, 1)
        at_least("cache.eviction.fade", self.fade, 0)

    def on_kv_use(self, item: Resident, now: int) -> None:
        item.kv_note = self._used(item.kv_note, now, is_kv=True)

    def on_state_use(self, item: Resident, now: int) -> None:
        note = None if item.state_created == now else item.state_note
        item.state_note = self._used(note, now, is_kv=False)

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        item = evicted.item
        row, used = item.kv_note if evicted.is_kv else item.state_note
        self._count(self._evictions, row, now - used)

    def kv_values(self, item: Resident) -> tuple[float, ...]:
        return (*item.kv_note, item.num_tokens * self._given().kv_bytes_per_token)

    def state_values(self, item: Resident) -> tuple[float, ...]:
        return (*item.state_note, max(self._given().state_bytes, 1))

    def scores(self, kv: Candidates, states: Candidates, now: int) -> tuple[FloatArray, FloatArray]:
        return self._per_byte(kv, now), self._per_byte(states, now)

    def _per_byte(self, candidates: Candidates, now: int) -> FloatArray:
        rows, used, num_bytes = candidates.values
        bins = _BIN_OF_AGE[np.minimum(now - used, _OLDEST).astype(np.int64)]
        densities: FloatArray = self._densities[rows.astype(np.int64), bins]
        return densities / num_bytes

    def _used(self, note: tuple[int, int] | None, now: int, *, is_kv: bool) -> tuple[int, int]:
        """(class, tick of this use), the use counted as a hit unless it is the first."""
        first = 0 if is_kv else 4
        if note is None:
            return (first, now)
        row, used = note
        self._count(self._hits, row, now - used)
        return (min(row + 1, first + 3), now)

    def _count(self, counts: FloatArray, row: int, age: int) -> None:
        counts[row, _BIN_OF_AGE[min(age, _OLDEST)]] += 1
        self._num_events += 1
        if self._num_events % self.events == 0:
            rows = zip(self._hits, self._evictions, strict=True)
            self._densities = np.array([hit_density(hits, lost) for hits, lost in rows])
            self._hits *= self.fade
            self._evictions *= self.fade
