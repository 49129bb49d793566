"""Least frequently used."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident


@dataclass(frozen=True)
class LFU(RankingPolicy):
    """Evict what was used by the fewest requests; ties by age of last use, then deepest first.

    KV is used by each request that passes it, a state by each that copies it.
    """

    source: ClassVar[str] = "textbook; SGLang 0.5.23 `lfu`"
    deviation: ClassVar[str] = "A node split off from another inherits its count, as in SGLang."

    def kv_priority(self, item: Resident) -> Priority:
        return (item.num_touches, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.num_state_touches, item.state_access, -item.end, 0)
