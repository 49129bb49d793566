"""What policies that score all candidates have in common."""

from collections.abc import Sequence

import numpy as np

from hybridsim.policies.base import FloatArray


def spread(values: FloatArray) -> FloatArray:
    """Min-max normalised to [0, 1]; all 1 where all are equal, as in Marconi's artifact."""
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones_like(values)


def floats(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float64)


def parted(scores: FloatArray, num_kv: int) -> tuple[FloatArray, FloatArray]:
    """Scores of KV and states computed in one array, KV first, as two."""
    return scores[:num_kv], scores[num_kv:]
