"""Hits per token."""

from dataclasses import dataclass, field
from typing import ClassVar

from hybridsim.policies.base import Priority, RankingPolicy, Resident, Setting


@dataclass
class HitsPerToken(RankingPolicy):
    """Evict what has the fewest uses for its size; ties by LRU.

    A leaf's KV: requests that passed it over its tokens. A state: requests that copied it over
    the tokens whose KV takes as many bytes.
    """

    needs_setting: ClassVar[bool] = True
    source: ClassVar[str] = "SGLang pull request #30300 (HPT, open in 2026)"
    deviation: ClassVar[str] = "The source ranks KV only; a state counts as KV of its own size."

    _state_tokens: float = field(default=1.0, init=False)

    def prepare(self, setting: Setting) -> None:
        if setting.kv_bytes_per_token and setting.state_bytes:
            self._state_tokens = setting.state_bytes / setting.kv_bytes_per_token

    def kv_priority(self, item: Resident) -> Priority:
        return (item.num_touches / item.num_tokens, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.num_state_touches / self._state_tokens, item.state_access, -item.end, 0)
