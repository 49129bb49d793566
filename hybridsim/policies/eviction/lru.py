"""Least recently used."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.errors import UserError
from hybridsim.policies.base import Priority, RankingPolicy, Resident


@dataclass(frozen=True)
class LRU(RankingPolicy):
    """Evict what was used longest ago; of one use, the deepest first, and a state before its KV.

    refresh: `path` touches every state on the matched path (SGLang until 2026-07), `consumed` only
    the one that was copied (SGLang since #31648, vLLM). KV is always touched along the whole path.
    """

    source: ClassVar[str] = "textbook; SGLang 0.5.23 and vLLM 0.33.0 refresh `consumed`"

    refresh: str = "path"

    def __post_init__(self) -> None:
        if self.refresh not in ("path", "consumed"):
            raise UserError(
                "cache.eviction.refresh", f"{self.refresh!r} is not allowed; path or consumed"
            )

    @property
    def refreshes_path(self) -> bool:
        return self.refresh == "path"

    def kv_priority(self, item: Resident) -> Priority:
        return (item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.state_access, -item.end, 0)
