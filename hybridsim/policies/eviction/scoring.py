"""What policies that score all candidates have in common."""

import numpy as np

from hybridsim.policies.base import Candidates, FloatArray


def spread(values: FloatArray) -> FloatArray:
    """Min-max normalised to [0, 1]; all 1 where all are equal, as in Marconi's artifact."""
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.ones_like(values)


def joined(kv: Candidates, states: Candidates) -> FloatArray:
    """Values of KV and states in one array, KV first, [num_values, num_kv + num_states].

    Perhaps a view.
    """
    if not len(kv) or not len(states):
        return states.values if len(states) else kv.values
    return np.hstack((kv.values, states.values))


def parted(scores: FloatArray, num_kv: int) -> tuple[FloatArray, FloatArray]:
    """Scores of KV and states computed in one array, KV first, as two."""
    return scores[:num_kv], scores[num_kv:]
