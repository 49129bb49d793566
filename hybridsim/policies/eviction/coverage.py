"""Coverage: thin the states where they lie densest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hybridsim.policies.base import FloatArray, Resident, ScanningPolicy
from hybridsim.policies.eviction.scoring import floats


@dataclass(frozen=True)
class Coverage(ScanningPolicy):
    """Evict the state with the shortest gap to the nearest state above it: what its loss adds to a
    replay. Of equal gaps the least recently used goes, then the deepest. KV goes by LRU.

    A chain of evenly spaced states is thus thinned all along and keeps a shallow one, where LRU
    drops the shallow ones first. Age decides ties only: a lone old state with a long gap stays.
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
        state_scores = np.ones(len(state_items))
        if state_items:
            keys = [(x.state_gap_tokens, x.state_access, -x.end) for x in state_items]
            state_scores[keys.index(min(keys))] = 0
        return floats([x.kv_access for x in kv_items]), state_scores
