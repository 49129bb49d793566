"""LRU-K."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class LRUK(RankingPolicy):
    """Evict what has the oldest k-th last use; what has fewer than k uses goes before, by LRU."""

    source: ClassVar[str] = "O'Neil, O'Neil, Weikum, SIGMOD 1993 (k = 2)"
    deviation: ClassVar[str] = (
        "No history of what was evicted, and no correlated reference period: one request uses an "
        "object once."
    )

    k: int = 2

    def __post_init__(self) -> None:
        at_least("cache.eviction.k", self.k, 1)

    def on_kv_use(self, item: Resident, now: int) -> None:
        item.kv_note = (*(item.kv_note or ()), now)[-self.k :]

    def on_state_use(self, item: Resident, now: int) -> None:
        before = () if item.state_created == now else item.state_note
        item.state_note = (*before, now)[-self.k :]

    def kv_priority(self, item: Resident) -> Priority:
        return (self._kth_use(item.kv_note), item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (self._kth_use(item.state_note), item.state_access, -item.end, 0)

    def _kth_use(self, uses: tuple[int, ...]) -> float:
        return uses[0] if len(uses) == self.k else -1
