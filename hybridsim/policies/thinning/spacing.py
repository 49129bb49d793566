"""Caps that look at the gaps between the states of a path."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Resident, Thinning
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
            ends = [0, *(x.end for x in left)]
            yield left.pop(min(spare, key=lambda row: self.loss(ends, row)))

    def may_go(self, item: Resident) -> bool:
        return not item.state_locks

    @abstractmethod
    def loss(self, ends: Sequence[int], row: int) -> int:
        """What dropping the state in `row` costs, in some unit.

        ends: 0, then the rising token positions of the states, so that the row's is the next.
        """


@dataclass(frozen=True)
class CoverageCap(_GapCap):
    """While the path has more than `max_states`, drop the one whose loss adds the least replay:
    the tokens from the state above it. The one just saved stays.
    """

    source: ClassVar[str] = "llama.cpp #25592 (closest to its neighbour), SGLang #38000"
    deviation: ClassVar[str] = "Distance to the neighbour above only: that is what a miss replays."

    def loss(self, ends: Sequence[int], row: int) -> int:
        return ends[row + 1] - ends[row]


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

    def loss(self, ends: Sequence[int], row: int) -> int:
        """Gaps a and b become a + b. Their sum and number do not depend on the row, so the variance
        grows with the sum of squares, by 2ab."""
        return (ends[row + 1] - ends[row]) * (ends[row + 2] - ends[row + 1])
