"""SegLen: recency and replay length."""

from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Candidates, FloatArray, Resident, ScanningPolicy
from hybridsim.policies.eviction.scoring import joined, parted, spread
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class SegLen(ScanningPolicy):
    """Evict the lowest recency + weight x tokens to replay, each spread over [0, 1].

    To replay: the tokens between the candidate's end and the nearest state above it.
    """

    num_values: ClassVar[int] = 2
    weighs_gaps: ClassVar[bool] = True
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

    def kv_values(self, item: Resident) -> tuple[float, ...]:
        return (item.kv_access, item.state_gap_tokens)

    def state_values(self, item: Resident) -> tuple[float, ...]:
        return (item.state_access, item.state_gap_tokens)

    def scores(self, kv: Candidates, states: Candidates, now: int) -> tuple[FloatArray, FloatArray]:
        accesses, replays = joined(kv, states)
        return parted(spread(accesses) + self.weight * spread(replays), len(kv))
