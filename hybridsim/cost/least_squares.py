"""Fits times that are the larger of two floors, and something besides. Knows no GPU, no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

# Where the two floors may cross at first, as compute over memory: the fit is repeated from each.
_STARTS = np.geomspace(0.02, 50, 18)
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class LargerOfTwo:
    """seconds = max(compute * flops_s, memory * bytes_s) + extra * extra_s + fixed_s * launches.

    error: root mean square of predicted / measured - 1. num_compute: points where the first is
    the larger; where there are none, `compute` is only its lower bound.
    """

    compute: float
    memory: float
    extra: float
    fixed_s: float
    error: float
    num_compute: int


def bounded_least_squares(
    matrix: np.ndarray, target: np.ndarray, least: Sequence[float]
) -> np.ndarray:
    """x >= `least` with the least |matrix x - target|^2, for a handful of unknowns.

    The problem is convex: of all choices of unknowns that lie at their bounds, the best one whose
    free unknowns keep theirs is the answer.
    """
    best, best_rest = np.array(least, dtype=float), np.inf
    for free in product((False, True), repeat=len(least)):
        mask = np.array(free)
        x = np.array(least, dtype=float)
        held = target - matrix[:, ~mask] @ x[~mask]
        if mask.any():
            x[mask], *_ = np.linalg.lstsq(matrix[:, mask], held, rcond=None)
        if (x < np.array(least) - 1e-15).any():
            continue
        rest = float(np.sum((matrix @ x - target) ** 2))
        if rest < best_rest * (1 - 1e-12):
            best, best_rest = x, rest
    return best


def fit_larger_of_two(
    terms: np.ndarray, seconds: np.ndarray, least: Sequence[float], memory: float | None = None
) -> LargerOfTwo:
    """The coefficients with the least sum of squared relative errors.

    terms: `[points, 4]`: flops_s, bytes_s, extra_s, launches. least: lower bounds of the four
    coefficients. memory: given where it is known from elsewhere. Which floor is the larger at which
    point is guessed, and mended until it stays; the best of many first guesses counts.
    """
    bounds = list(least)
    if memory is not None:
        bounds[1] = memory
    found = [_descend(terms, seconds, bounds, memory, start) for start in _STARTS]
    return min(found, key=lambda one: one.error)


def _descend(
    terms: np.ndarray, seconds: np.ndarray, least: list[float], memory: float | None, ratio: float
) -> LargerOfTwo:
    best: LargerOfTwo | None = None
    compute_larger = terms[:, 0] * ratio >= terms[:, 1]
    for _ in range(_ROUNDS):
        x = _solve(terms, seconds, least, memory, compute_larger)
        one = _judged(terms, seconds, x)
        if best is None or one.error < best.error:
            best = one
        now = terms[:, 0] * x[0] >= terms[:, 1] * x[1]
        if (now == compute_larger).all():
            break
        compute_larger = now
    assert best is not None
    return best


def _solve(
    terms: np.ndarray,
    seconds: np.ndarray,
    least: list[float],
    memory: float | None,
    compute_larger: np.ndarray,
) -> np.ndarray:
    chosen = terms.copy()
    chosen[~compute_larger, 0] = 0.0
    chosen[compute_larger, 1] = 0.0
    matrix, target = chosen / seconds[:, None], np.ones(len(seconds))
    if memory is None:
        return bounded_least_squares(matrix, target, least)
    others = [0, 2, 3]
    held = target - memory * matrix[:, 1]
    x = bounded_least_squares(matrix[:, others], held, [least[i] for i in others])
    return np.array([x[0], memory, x[1], x[2]])


def _judged(terms: np.ndarray, seconds: np.ndarray, x: np.ndarray) -> LargerOfTwo:
    compute, memory = terms[:, 0] * x[0], terms[:, 1] * x[1]
    predicted = np.maximum(compute, memory) + terms[:, 2] * x[2] + terms[:, 3] * x[3]
    error = float(np.sqrt(np.mean((predicted / seconds - 1) ** 2)))
    num_compute = int(np.sum((compute > memory) & (compute > 0)))
    first, second, extra, fixed_s = map(float, x)
    return LargerOfTwo(first, second, extra, fixed_s, error, num_compute)
