"""What resuming at a position is worth: tokens, FLOPs or seconds of prefill that it saves."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridsim.cost.base import CostModel, PrefillChunk
from hybridsim.models import ModelSpec
from hybridsim.request import Int64Array

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reward:
    """`linear * p + quadratic * p^2` for resuming at token p; both >= 0, so it is convex.

    Convexity is what lets the bound look at few positions and still cover all of them.
    """

    unit: str
    linear: float
    quadratic: float = 0.0

    def of(self, positions: Int64Array) -> FloatArray:
        """Reward of each position."""
        at = positions.astype(np.float64)
        return self.linear * at + self.quadratic * at * at

    def at(self, position: int) -> float:
        """Reward of one position."""
        return self.linear * position + self.quadratic * position * position

    @staticmethod
    def tokens() -> "Reward":
        """Prompt tokens that are not computed."""
        return Reward("tokens", 1.0)

    @staticmethod
    def fitted(unit: str, cost: Callable[[int], float], longest_tokens: int) -> "Reward":
        """From the cost of prefilling n tokens: the convex quadratic nearest to it from 0 on.

        Least squares over 33 lengths up to `longest_tokens`; a constant (launches, weights read
        once) is fitted beside it and dropped, since resuming does not save it.
        """
        lengths = np.unique(np.linspace(1, max(longest_tokens, 3), 33).astype(np.int64))
        costs = np.array([cost(int(n)) for n in lengths])
        scale = float(lengths[-1])
        x = lengths / scale
        columns = np.stack([np.ones_like(x), x, x * x], axis=1)
        fit, *_ = np.linalg.lstsq(columns, costs, rcond=None)
        if fit[2] < 0 or fit[1] < 0:
            kept = 1 if fit[2] < 0 else 2
            part, *_ = np.linalg.lstsq(columns[:, [0, kept]], costs, rcond=None)
            fit = np.zeros(3)
            fit[kept] = max(part[1], 0.0)
        return Reward(unit, float(fit[1]) / scale, float(fit[2]) / scale**2)

    @staticmethod
    def flops(model: ModelSpec, longest_tokens: int) -> "Reward":
        """FLOPs of the prefill that resuming saves."""
        return Reward.fitted("flops", lambda n: float(model.prefill_flops(n).total), longest_tokens)

    @staticmethod
    def seconds(cost: CostModel, longest_tokens: int) -> "Reward":
        """Seconds of prefill that resuming saves, in a step of its own."""
        return Reward.fitted(
            "seconds", lambda n: cost.step_s((PrefillChunk(n, 0),), 0, 0), longest_tokens
        )
