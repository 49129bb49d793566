"""SGLang's cap on states per path."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Resident, Thinning
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class PathCap(Thinning):
    """While the path has more than `max_states`, drop the shallowest that is no fork, no leaf, not
    the one just saved, and not being copied. A soft cap: where none can go, all stay.
    """

    source: ClassVar[str] = "SGLang #31230 (`--mamba-max-states-per-path`)"

    max_states: int

    def __post_init__(self) -> None:
        at_least("cache.thinning.max_states", self.max_states, 1)

    def dropped(self, states: Sequence[Resident]) -> Iterable[Resident]:
        spare = [x for x in states[:-1] if x.num_children == 1 and not x.state_locks]
        return spare[: max(len(states) - self.max_states, 0)]
