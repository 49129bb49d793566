"""Coverage: thin the states where they lie densest."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident


@dataclass(frozen=True)
class Coverage(RankingPolicy):
    """Evict the state with the shortest gap to the nearest state above it: what its loss adds to a
    replay. Of equal gaps the least recently used goes, then the deepest. KV goes by LRU.

    A chain of evenly spaced states is thus thinned all along and keeps a shallow one, where LRU
    drops the shallow ones first. Age decides ties only: a lone old state with a long gap stays.
    """

    may_fall: ClassVar[bool] = True  # a state saved above shortens the gap
    weighs_gaps: ClassVar[bool] = True
    layouts: ClassVar[tuple[str, ...]] = ("split",)
    refusal: ClassVar[str] = "coverage weighs states against states, in tokens, never against KV"
    source: ClassVar[str] = "SGLang pull request #38000 (open in 2026)"
    deviation: ClassVar[str] = "The source's exact measure is unpublished; this is its idea."

    @property
    def refreshes_path(self) -> bool:
        return False

    def kv_priority(self, item: Resident) -> Priority:
        return (1, item.kv_access, -item.end)

    def state_priority(self, item: Resident) -> Priority:
        return (0, item.state_gap_tokens, item.state_access, -item.end)
