"""Caps that look at the gaps between the states of a path."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hybridsim.policies.base import FloatArray, Resident, Thinning
from hybridsim.policies.make import at_least
from hybridsim.records import HitSource


@dataclass(frozen=True)
class _GapCap(Thinning):
    """At most `max_states` along a path; what goes is chosen anew after each drop."""

    max_states: int

    def __post_init__(self) -> None:
        at_least("cache.thinning.max_states", self.max_states, 1)

    def dropped(self, states: Sequence[Resident]) -> Iterable[Resident]:
        left = list(states)
        while len(left) > self.max_states:
            spare = [row for row in range(len(left) - 1) if self.may_go(left[row])]
            if not spare:
                return
            ends = np.array([x.end for x in left], dtype=np.float64)
            yield left.pop(min(spare, key=lambda row: self.loss(ends, row)))

    def may_go(self, item: Resident) -> bool:
        return not item.state_locks

    @abstractmethod
    def loss(self, ends: FloatArray, row: int) -> float:
        """What dropping the state in `row` costs; `ends`: [states] rising token positions."""


@dataclass(frozen=True)
class CoverageCap(_GapCap):
    """While the path has more than `max_states`, drop the one whose loss adds the least replay:
    the tokens from the state above it. The one just saved stays.
    """

    source: ClassVar[str] = "llama.cpp #25592 (closest to its neighbour), SGLang #38000"
    deviation: ClassVar[str] = "Distance to the neighbour above only: that is what a miss replays."

    def loss(self, ends: FloatArray, row: int) -> float:
        return float(ends[row] - (ends[row - 1] if row else 0))


@dataclass(frozen=True)
class VarianceCap(_GapCap):
    """While the path has more than `max_states`, drop the one that leaves the most even spacing.

    Evenness is the variance of the gaps, the first counted from 0. States at a prompt's end and
    the one just saved stay.
    """

    source: ClassVar[str] = "ik_llama.cpp #2020, #2491 (`--ctx-checkpoints-eviction variance`)"
    deviation: ClassVar[str] = "Along a path of the tree rather than in a server slot."

    def may_go(self, item: Resident) -> bool:
        return not item.state_locks and item.state_source != HitSource.PROMPT_END

    def loss(self, ends: FloatArray, row: int) -> float:
        return float(np.diff(np.delete(ends, row), prepend=0.0).var())
