"""Prefix-aware greedy-dual size frequency (RAGCache)."""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from hybridsim.policies.base import Evicted, Priority, RankingPolicy, Resident
from hybridsim.policies.eviction.informed import Informed
from hybridsim.request import Request


class _Note(NamedTuple):
    """FLOPs a token, summed over the requests that computed the item, and how many they were."""

    flops_per_token: float
    num_computed: int
    priority: float


@dataclass
class PGDSF(Informed, RankingPolicy):
    """Evict the lowest Clock + uses x cost / size; Clock is the highest priority evicted so far.

    Cost: what one token cost the requests that computed the item, on average: the prefill of
    their uncached tokens after their cached ones, over the number of these. A state stands for
    the tokens from the nearest state above it.
    """

    may_fall: ClassVar[bool] = True  # a cheaper computation lowers the average
    source: ClassVar[str] = "RAGCache (arXiv 2404.12457)"
    deviation: ClassVar[str] = "FLOPs stand for the profiled seconds; a page tail may go alone."

    _clock: float = field(default=0.0, init=False)
    _hits: dict[Request, tuple[int, float]] = field(default_factory=dict, init=False, repr=False)

    def on_request(self, request: Request, num_hit_tokens: int) -> None:
        num_new_tokens = max(request.num_prompt_tokens - num_hit_tokens, 1)
        flops = self._given().prefill_flops(num_new_tokens, num_hit_tokens)
        self._hits[request] = (num_hit_tokens, flops / num_new_tokens)

    def on_kv_use(self, item: Resident, now: int) -> None:
        flops_per_token, num_computed = (item.kv_note or (0.0, 0, 0.0))[:2]
        assert item.last_user is not None
        num_hit_tokens, flops_of_user = self._hits[item.last_user]
        if item.end > num_hit_tokens or not num_computed:
            flops_per_token += flops_of_user
            num_computed += 1
        cost = flops_per_token / num_computed / self._given().kv_bytes_per_token
        priority = self._clock + item.num_touches * cost
        item.kv_note = _Note(flops_per_token, num_computed, priority)

    def on_state_use(self, item: Resident, now: int) -> None:
        flops_per_token, num_computed, _ = item.kv_note
        cost = flops_per_token / num_computed * item.state_gap_tokens / self._given().state_bytes
        item.state_note = self._clock + max(item.num_state_touches, 1) * cost

    def kv_priority(self, item: Resident) -> Priority:
        return (item.kv_note.priority, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.state_note, item.state_access, -item.end, 0)

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        self._clock = max(self._clock, evicted.priority[0])
