"""Fits times that are sums of the larger of two floors, and launches. Knows no GPU, no model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

# First guesses of where floors cross, of all groups together: the fit is repeated from each.
_STARTS = 120
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Floors:
    """seconds = sum over groups of max(compute * flops_s, memory * bytes_s) + fixed_s * launches.

    compute, memory: a coefficient a group. num_compute: points where the first is the larger;
    where there are none, `compute` is only its lower bound. error: root mean square of
    predicted / measured - 1.
    """

    compute: tuple[float, ...]
    memory: tuple[float, ...]
    fixed_s: float
    num_compute: tuple[int, ...]
    error: float


def bounded_least_squares(
    matrix: np.ndarray, target: np.ndarray, least: Sequence[float]
) -> np.ndarray:
    """x >= `least` with the least |matrix x - target|^2, for a handful of unknowns.

    The problem is convex: of all choices of unknowns that lie at their bounds, the best one whose
    free unknowns keep theirs is the answer. An unknown without a say lies at its bound.
    """
    bounds = np.array(least, dtype=float)
    best, best_rest = bounds, float(np.sum((matrix @ bounds - target) ** 2))
    choices = [(False, True) if column.any() else (False,) for column in matrix.T]
    for free in product(*choices):
        mask, x = np.array(free), bounds.copy()
        if not mask.any():
            continue
        held = target - matrix[:, ~mask] @ x[~mask]
        x[mask], *_ = np.linalg.lstsq(matrix[:, mask], held, rcond=None)
        rest = float(np.sum((matrix @ x - target) ** 2))
        if (x >= bounds - 1e-15).all() and rest < best_rest * (1 - 1e-12):
            best, best_rest = x, rest
    return best


def fit_floors(
    floors: np.ndarray,
    launches: np.ndarray,
    seconds: np.ndarray,
    least: tuple[float, float],
    memory: Mapping[int, float] | None = None,
) -> Floors:
    """The coefficients with the least sum of squared relative errors.

    floors: `[points, groups, 2]`, flops_s and bytes_s; launches, seconds: `[points]`. least: lower
    bounds of compute and memory. memory: of groups where it is known from elsewhere. Which floor is
    the larger at which point is guessed, and mended until it stays; the best of many first guesses
    counts.
    """
    problem = _Problem(floors, launches, seconds, least, memory or {})
    crossings = [_crossings(group) for group in floors.swapaxes(0, 1)]
    told = sum(len(found) > 1 for found in crossings)
    most = int(_STARTS ** (1 / max(told, 1)))
    starts = product(*(_some(found, most) for found in crossings))
    found = [problem.descend(np.array(start)) for start in starts]
    enough = min(one.error for one in found) * (1 + 1e-6) + 1e-9
    # Where operations and bytes grow alike, either could be the cause: memory comes first.
    return next(one for one in found if one.error <= enough)


def _crossings(floors: np.ndarray) -> np.ndarray:
    """Every ratio of coefficients that sorts the points differently; floors: `[points, 2]`.

    Up to a ratio of compute over memory a point is bound by memory, so that only the order of
    bytes_s / flops_s counts.
    """
    counted = floors[floors[:, 0] > 0]
    ratios = np.unique(counted[:, 1] / counted[:, 0])
    between = np.sqrt(ratios[:-1] * ratios[1:])
    return np.array([0.0, *between, np.inf]) if len(ratios) else np.array([0.0])


def _some(values: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the values, evenly, the outer two among them."""
    places = np.linspace(0, len(values) - 1, min(max(most, 2), len(values)))
    return values[np.unique(places.round().astype(int))]


@dataclass(frozen=True)
class _Problem:
    floors: np.ndarray
    launches: np.ndarray
    seconds: np.ndarray
    least: tuple[float, float]
    memory: Mapping[int, float]

    def descend(self, ratios: np.ndarray) -> Floors:
        """From first guesses of compute over memory, a group each."""
        with np.errstate(invalid="ignore"):  # infinite ratios of no operations
            larger = np.nan_to_num(self.floors[..., 0] * ratios) >= self.floors[..., 1]
        found: list[Floors] = []
        for _ in range(_ROUNDS):
            compute, memory, fixed_s = self.solve(larger)
            found.append(self.judged(compute, memory, fixed_s))
            now = self.floors[..., 0] * compute >= self.floors[..., 1] * memory
            if (now == larger).all():
                break
            larger = now
        return min(found, key=lambda one: one.error)

    def solve(self, larger: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Best coefficients while it stays as it is which floor is the larger, `[points, groups]`.

        Unknowns are compute and memory of each group, then the fixed time.
        """
        points, groups, _ = self.floors.shape
        chosen = np.where(np.stack([larger, ~larger], axis=2), self.floors, 0.0)
        columns = np.column_stack([chosen.reshape(points, 2 * groups), self.launches])
        columns = columns / self.seconds[:, None]
        x = np.array([*self.least * groups, 0.0])
        known = np.zeros(len(x), dtype=bool)
        for group, value in self.memory.items():
            x[2 * group + 1], known[2 * group + 1] = value, True
        held = 1 - columns[:, known] @ x[known]
        x[~known] = bounded_least_squares(columns[:, ~known], held, x[~known].tolist())
        return x[:-1:2], x[1:-1:2], float(x[-1])

    def judged(self, compute: np.ndarray, memory: np.ndarray, fixed_s: float) -> Floors:
        """How these coefficients do on all points."""
        first, second = self.floors[..., 0] * compute, self.floors[..., 1] * memory
        predicted = np.maximum(first, second).sum(axis=1) + self.launches * fixed_s
        error = float(np.sqrt(np.mean((predicted / self.seconds - 1) ** 2)))
        counts = ((first > second) & (first > 0)).sum(axis=0)
        return Floors(
            tuple(compute.tolist()), tuple(memory.tolist()), fixed_s, tuple(counts.tolist()), error
        )
