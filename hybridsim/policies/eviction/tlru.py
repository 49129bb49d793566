"""Tail-optimised LRU."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class TailOptimisedLRU(RankingPolicy):
    """Evict first, by LRU, what the next turn can lose and still compute at most a threshold.

    The next prompt is taken to have as many tokens as the last user's prompt and output and
    `next_prompt_tokens` more. threshold_tokens: how many of them may be uncached.
    """

    may_fall: ClassVar[bool] = True  # a shorter request may be the last user
    weighs_gaps: ClassVar[bool] = True
    source: ClassVar[str] = "Tail-optimised LRU (arXiv 2510.15152); SGLang 0.5.23 `tlru`"
    deviation: ClassVar[str] = (
        "The threshold is given in tokens; of a shared node only the last user's next turn counts."
    )

    threshold_tokens: int
    next_prompt_tokens: int = 0

    def __post_init__(self) -> None:
        at_least("cache.eviction.threshold_tokens", self.threshold_tokens, 0)
        at_least("cache.eviction.next_prompt_tokens", self.next_prompt_tokens, 0)

    def kv_priority(self, item: Resident) -> Priority:
        is_needed = item.end <= self._needed_tokens(item)
        return (is_needed, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        is_needed = item.end - item.state_gap_tokens < self._needed_tokens(item)
        return (is_needed, item.state_access, -item.end, 0)

    def kv_floor(self, item: Resident) -> int:
        needed = self._needed_tokens(item)
        return needed if item.start < needed < item.end else item.start

    def _needed_tokens(self, item: Resident) -> int:
        """Prefix that must stay reusable for the next turn to keep to the threshold."""
        user = item.last_user
        assert user is not None
        num_tokens = user.num_prompt_tokens + user.num_output_tokens
        return num_tokens + self.next_prompt_tokens - self.threshold_tokens
