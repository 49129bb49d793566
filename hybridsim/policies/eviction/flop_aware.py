"""Marconi's FLOP-aware eviction, on the research tree."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Candidates, FloatArray, Resident, ScanningPolicy
from hybridsim.policies.eviction.informed import Informed
from hybridsim.policies.eviction.scoring import joined, parted, spread
from hybridsim.policies.make import at_least


@dataclass
class FlopAware(Informed, ScanningPolicy):
    """Evict the lowest recency + alpha x FLOPs saved per byte freed, each spread over [0, 1].

    Recency is 1 / (ticks since the last use + 1). A leaf's KV saves the prefill of its own tokens
    and frees their KV; a state saves the tokens from the nearest state above and frees itself.
    """

    num_values: ClassVar[int] = 2
    weighs_gaps: ClassVar[bool] = True
    source: ClassVar[str] = "Marconi V3 (MLSys'25, arXiv 2411.19379)"
    deviation: ClassVar[str] = (
        "Bytes really freed instead of the whole prefix's; states at forks are candidates too; KV "
        "and states go one by one. Engine `marconi` has the artifact's own rules."
    )

    alpha: float = 1.0

    def __post_init__(self) -> None:
        at_least("cache.eviction.alpha", self.alpha, 0)

    @property
    def refreshes_path(self) -> bool:
        return False

    def kv_values(self, item: Resident) -> tuple[float, ...]:
        return (item.kv_access, self._kv_saving(item))

    def state_values(self, item: Resident) -> tuple[float, ...]:
        return (item.state_access, self._state_saving(item))

    def scores(self, kv: Candidates, states: Candidates, now: int) -> tuple[FloatArray, FloatArray]:
        accesses, savings = joined(kv, states)
        recency = 1 / (now - accesses + 1)
        return parted(spread(recency) + self.alpha * spread(savings), len(kv))

    def _kv_saving(self, item: Resident) -> float:
        """FLOPs a byte; kept in the note as long as the edge stays the same."""
        key = (item.start, item.end)
        if item.kv_note is None or item.kv_note[0] != key:
            setting = self._given()
            flops = setting.prefill_flops(item.num_tokens, item.start)
            item.kv_note = (key, flops / (item.num_tokens * setting.kv_bytes_per_token))
        return float(item.kv_note[1])

    def _state_saving(self, item: Resident) -> float:
        gap = item.state_gap_tokens
        if item.state_note is None or item.state_note[0] != gap:
            setting = self._given()
            flops = setting.prefill_flops(gap, item.end - gap)
            item.state_note = (gap, flops / setting.state_bytes)
        return float(item.state_note[1])
