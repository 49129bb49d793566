"""First in, first out."""

from dataclasses import dataclass

from hybridsim.policies.base import Priority, RankingPolicy, Resident


@dataclass(frozen=True)
class FIFO(RankingPolicy):
    """Evict what was cached first, however often it was used since; ties deepest first."""

    def kv_priority(self, item: Resident) -> Priority:
        return (item.created, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.state_created, -item.end, 0)
