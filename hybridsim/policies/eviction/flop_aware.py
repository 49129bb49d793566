"""Marconi's FLOP-aware eviction, on the research tree."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hybridsim.policies.base import FloatArray, Resident, ScanningPolicy, Setting
from hybridsim.policies.eviction.scoring import floats, parted, spread
from hybridsim.policies.make import at_least


@dataclass
class FlopAware(ScanningPolicy):
    """Evict the lowest recency + alpha x FLOPs saved per byte freed, each spread over [0, 1].

    Recency is 1 / (ticks since the last use + 1). A leaf's KV saves the prefill of its own tokens
    and frees their KV; a state saves the tokens from the nearest state above and frees itself.
    """

    needs_setting: ClassVar[bool] = True
    source: ClassVar[str] = "Marconi V3 (MLSys'25, arXiv 2411.19379)"
    deviation: ClassVar[str] = (
        "Bytes really freed instead of the whole prefix's; states at forks are candidates too; KV "
        "and states go one by one. Engine `marconi` has the artifact's own rules."
    )

    alpha: float = 1.0

    _setting: Setting | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        at_least("cache.eviction.alpha", self.alpha, 0)

    @property
    def refreshes_path(self) -> bool:
        return False

    def prepare(self, setting: Setting) -> None:
        self._setting = setting

    def scores(
        self, kv_items: Sequence[Resident], state_items: Sequence[Resident], now: int
    ) -> tuple[FloatArray, FloatArray]:
        accesses = [x.kv_access for x in kv_items] + [x.state_access for x in state_items]
        savings = [self._kv_saving(x) for x in kv_items]
        savings += [self._state_saving(x) for x in state_items]
        recency = 1 / (now - floats(accesses) + 1)
        return parted(spread(recency) + self.alpha * spread(floats(savings)), len(kv_items))

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

    def _given(self) -> Setting:
        assert self._setting is not None, "prepare was not called"
        return self._setting
