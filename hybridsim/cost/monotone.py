"""Measured times made to rise: the nearest ones that never fall along an axis.

Kernels are not monotone: a matrix library may take 12 % longer for 641 rows than for 677, having
chosen other tiles. A price list must not be bent that way: where times fall along an axis, both
sides get their mean (isotonic regression of the logarithms, the nearest in relative terms).
"""

import numpy as np

_ROUNDS = 50


def rising(values: np.ndarray) -> np.ndarray:
    """The sequence nearest to `values` `[n]` in least squares that does not fall, O(n).

    Pool adjacent violators: neighbours out of order share their mean.
    """
    means: list[float] = []
    counts: list[int] = []
    for value in values.tolist():
        means.append(value)
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            count, mean = counts.pop(), means.pop()
            means[-1] = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
            counts[-1] += count
    return np.repeat(means, counts)


def rising_times(seconds: np.ndarray) -> np.ndarray:
    """Times near `seconds` `[n, m]`, all above 0, that do not fall along either axis.

    Both axes in turn until nothing moves; times that rise already stay as they are.
    """
    logs = np.log(seconds)
    for _ in range(_ROUNDS):
        before = logs
        logs = np.apply_along_axis(rising, 0, logs)
        logs = np.apply_along_axis(rising, 1, logs)
        if np.array_equal(before, logs):
            break
    times = np.where(logs == np.log(seconds), seconds, np.exp(logs))
    # What is left after that many rounds is rounding.
    return np.maximum.accumulate(np.maximum.accumulate(times, axis=0), axis=1)


def rising_increments(seconds: np.ndarray) -> np.ndarray:
    """Times near `seconds` `[n, m]` whose increments along axis 0 do not fall along axis 1.

    For sequences that run side by side: a further one never makes the next tokens of all cheaper.
    """
    first = rising_times(seconds[:1])
    steps = np.maximum(np.diff(rising_times(seconds), axis=0), 0.0)
    steps = np.apply_along_axis(rising, 1, steps) if len(steps) else steps
    return np.concatenate([first, first + np.cumsum(steps, axis=0)])
