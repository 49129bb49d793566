"""Greedy-dual size frequency."""

from dataclasses import dataclass, field
from typing import ClassVar

from hybridsim.policies.base import Evicted, Priority, RankingPolicy, Resident
from hybridsim.policies.eviction.informed import Informed


@dataclass
class GDSF(Informed, RankingPolicy):
    """Evict the lowest H = L + uses x FLOPs to recompute / bytes; L rises to each victim's H.

    H is set when the object is used. KV costs the prefill of its own tokens; a state that of the
    tokens from the nearest state above it.
    """

    may_fall: ClassVar[bool] = True  # a state saved above makes this one cheaper to recompute
    source: ClassVar[str] = "Cherkasova 1998 (GDSF); LFU-DA is the case of equal cost and size"
    deviation: ClassVar[str] = "A node's KV is one object, and keeps its H while its tail goes."

    _inflation: float = field(default=0.0, init=False)

    def on_kv_use(self, item: Resident, now: int) -> None:
        setting = self._given()
        flops = setting.prefill_flops(item.num_tokens, item.start)
        size_bytes = item.num_tokens * setting.kv_bytes_per_token
        item.kv_note = self._inflation + item.num_touches * flops / size_bytes

    def on_state_use(self, item: Resident, now: int) -> None:
        setting = self._given()
        gap = item.state_gap_tokens
        flops = setting.prefill_flops(gap, item.end - gap)
        uses = max(item.num_state_touches, 1)
        item.state_note = self._inflation + uses * flops / setting.state_bytes

    def kv_priority(self, item: Resident) -> Priority:
        return (item.kv_note, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.state_note, item.state_access, -item.end, 0)

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        self._inflation = max(self._inflation, evicted.priority[0])
