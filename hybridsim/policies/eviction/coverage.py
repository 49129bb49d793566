"""Coverage: thin the densest part of the stalest path."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hybridsim.policies.base import FloatArray, Resident, ScanningPolicy
from hybridsim.policies.eviction.scoring import floats


@dataclass(frozen=True)
class Coverage(ScanningPolicy):
    """Evict, of the states above and below the least recent one, that with the shortest gap above.

    The gap is what losing the state adds to a replay; of equal gaps the deepest state goes. KV
    goes by LRU.
    """

    layouts: ClassVar[tuple[str, ...]] = ("split",)
    refusal: ClassVar[str] = "coverage weighs states against states, in tokens, never against KV"
    source: ClassVar[str] = "SGLang pull request #38000 (open in 2026)"
    deviation: ClassVar[str] = "The source's exact measure is unpublished; this is its idea."

    @property
    def refreshes_path(self) -> bool:
        return False

    def scores(
        self, kv_items: Sequence[Resident], state_items: Sequence[Resident], now: int
    ) -> tuple[FloatArray, FloatArray]:
        kv_scores = floats([x.kv_access for x in kv_items])
        state_scores = np.ones(len(state_items))
        if state_items:
            state_scores[self._densest(state_items)] = 0
        return kv_scores, state_scores

    def _densest(self, items: Sequence[Resident]) -> int:
        stalest = min(items, key=lambda x: (x.state_access, -x.end))
        above = set(stalest.path())
        rows = [row for row, x in enumerate(items) if x in above or stalest in x.path()]
        return min(rows, key=lambda row: (items[row].state_gap_tokens, -items[row].end))
