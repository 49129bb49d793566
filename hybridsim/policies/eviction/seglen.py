"""SegLen: recency and replay length."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import FloatArray, Resident, ScanningPolicy
from hybridsim.policies.eviction.scoring import floats, parted, spread
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class SegLen(ScanningPolicy):
    """Evict the lowest recency + weight x tokens to replay, each spread over [0, 1].

    To replay: the tokens between the candidate's end and the nearest state above it.
    """

    source: ClassVar[str] = "SGLang pull request #22172 (closed 2026-04)"
    deviation: ClassVar[str] = (
        "The source's normalisation is unpublished: min-max over the candidates here, of the last "
        "use's tick. KV is refreshed along the whole path, states only where consumed."
    )

    weight: float = 0.85

    def __post_init__(self) -> None:
        at_least("cache.eviction.weight", self.weight, 0)

    @property
    def refreshes_path(self) -> bool:
        return False

    def scores(
        self, kv_items: Sequence[Resident], state_items: Sequence[Resident], now: int
    ) -> tuple[FloatArray, FloatArray]:
        accesses = [x.kv_access for x in kv_items] + [x.state_access for x in state_items]
        replays = [x.state_gap_tokens for x in (*kv_items, *state_items)]
        scores = spread(floats(accesses)) + self.weight * spread(floats(replays))
        return parted(scores, len(kv_items))
