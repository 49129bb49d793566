"""First in, first out."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident


@dataclass(frozen=True)
class FIFO(RankingPolicy):
    """Evict what was cached first, however often it was used since; ties deepest first."""

    source: ClassVar[str] = "textbook; in SGLang 0.5.23's code"
    deviation: ClassVar[str] = "KV goes leaf first, so an old prefix outlives its newer children."

    def kv_priority(self, item: Resident) -> Priority:
        return (item.created, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.state_created, -item.end, 0)
