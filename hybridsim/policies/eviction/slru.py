"""Segmented LRU."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class SLRU(RankingPolicy):
    """Evict what was used by fewer than `uses` requests first; LRU within both segments.

    KV is used by each request that passes it, a state by each that copies it.
    """

    source: ClassVar[str] = "Karedla, Love, Wherry 1994; SGLang 0.5.23 `slru`"
    deviation: ClassVar[str] = (
        "As in SGLang the protected segment has no size limit and demotes nothing."
    )

    uses: int = 2

    def __post_init__(self) -> None:
        at_least("cache.eviction.uses", self.uses, 1)

    def kv_priority(self, item: Resident) -> Priority:
        return (item.num_touches >= self.uses, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.num_state_touches >= self.uses, item.state_access, -item.end, 0)
