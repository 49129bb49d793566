"""Measured times over a grid: interpolated between points, continued as straight lines outside."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import ceil, exp, log
from typing import Any

import numpy as np

from hybridsim.cost.monotone import rising_times
from hybridsim.errors import UserError


def _cell(knots: Sequence[float], x: float) -> tuple[int, float]:
    """Index of the interval to use for x and the place in it: 0 at its start, 1 at its end."""
    index = min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)
    low, high = knots[index], knots[index + 1]
    return index, (x - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Curve:
    """Piecewise linear through (knots, values); constant before the first knot.

    Beyond the last knot it rises by `slope` per unit; None: the last piece goes on, but never
    falls.
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]
    slope: float | None = None

    def at(self, x: float) -> float:
        if x <= self.knots[0]:
            return self.values[0]
        if x > self.knots[-1]:
            slope = self.last_slope if self.slope is None else self.slope
            return self.values[-1] + slope * (x - self.knots[-1])
        index, place = _cell(self.knots, x)
        rise = self.values[index + 1] - self.values[index]
        return self.values[index] + rise * place

    @property
    def last_slope(self) -> float:
        """Rise per unit of the last piece, 0 where it falls."""
        rise = self.values[-1] - self.values[-2]
        return max(rise, 0.0) / (self.knots[-1] - self.knots[-2])

    def sum_at(self, start: float, count: int) -> float:
        """Sum over i in [0, count) of at(start + i), at a cost that does not depend on count."""
        cuts = sorted({0, count, *(self._first_past(knot, start, count) for knot in self.knots)})
        total = 0.0
        for first, last in pairwise(cuts):
            # All terms lie on one straight piece, so their mean is that of the outer two.
            total += (last - first) * (self.at(start + first) + self.at(start + last - 1)) / 2
        return total

    @staticmethod
    def _first_past(knot: float, start: float, count: int) -> int:
        """The first i in [0, count] with start + i >= knot."""
        return min(max(ceil(knot - start), 0), count)


@dataclass(frozen=True, slots=True)
class Table:
    """Seconds of one operator on a full grid of one or two axes.

    `seconds[i][j]` belongs to `(first[i], second[j])`; a table of one axis has one column.
    `spread`: median over the points of (80 % quantile - 20 % quantile) / median. `moved`: largest
    relative distance from a measured time to the one used, which rises along both axes.
    """

    name: str
    first: tuple[float, ...]
    second: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]
    spread: float
    moved: float = 0.0
    columns: tuple[Curve, ...] = field(init=False)
    slopes: Curve | None = field(init=False)

    def __post_init__(self) -> None:
        curves = tuple(Curve(self.first, column) for column in zip(*self.seconds, strict=True))
        object.__setattr__(self, "columns", curves)
        object.__setattr__(self, "slopes", self._slopes() if len(self.second) > 1 else None)

    def _slopes(self) -> Curve:
        """Along the first axis: by how much rows rise beyond the end of the second.

        Lines of unequal slope would cross out there, so none is flatter than one below it.
        """
        rows = (Curve(self.second, row).last_slope for row in self.seconds)
        return Curve(self.first, tuple(accumulate(rows, max)))

    def covers(self, x: float, y: float | None = None) -> bool:
        """Whether the point lies within the measured grid."""
        inside = self.first[0] <= x <= self.first[-1]
        return inside and (y is None or self.second[0] <= y <= self.second[-1])

    def at(self, x: float) -> float:
        """Of a table of one axis."""
        return self.columns[0].at(x)

    def row(self, x: float) -> Curve:
        """The second axis at a fixed x, linear in x between rows."""
        return self._curve(x, (max(curve.at(x), 0.0) for curve in self.columns))

    def power_row(self, x: float) -> Curve:
        """As `row`, but straight in log-log: for times that grow as a power of x."""
        x = max(x, self.first[0])
        index, place = _cell([log(knot) for knot in self.first], log(x))
        low, high = self.seconds[index], self.seconds[index + 1]
        values = (exp(log(a) + place * (log(b) - log(a))) for a, b in zip(low, high, strict=True))
        return self._curve(x, values)

    def _curve(self, x: float, values: Iterable[float]) -> Curve:
        """Beyond the grid lines of unequal slope would cross: none falls below its neighbour."""
        slope = self.slopes.at(x) if self.slopes else None
        return Curve(self.second, tuple(accumulate(values, max)), slope)


def read_table(
    name: str,
    data: Mapping[str, Any],
    place: str,
    smooth: Callable[[np.ndarray], np.ndarray] = rising_times,
) -> Table:
    """A table from a profile's operator; UserError where points are missing or make no grid.

    data: as `check_profile` lets it pass, so without points that are there twice or take no time.
    smooth: from measured times `[first axis, second axis]` to times that rise along both.
    """
    points = {tuple(point["at"]): point for point in data.get("points", ())}
    axes = [sorted({at[i] for at in points}) for i in range(len(data.get("axes", ())))]
    if not points or any(len(axis) < 2 for axis in axes):
        raise UserError(f"{place}.{name}", "has too few points; allowed: two or more an axis")
    first, second = axes[0], axes[1] if len(axes) > 1 else [None]
    grid = [[(x,) if y is None else (x, y) for y in second] for x in first]
    missing = [at for row in grid for at in row if at not in points]
    if missing:
        raise UserError(f"{place}.{name}", f"lacks the point {list(missing[0])} of its grid")
    measured = np.array([[float(points[at]["median_s"]) for at in row] for row in grid])
    seconds = smooth(measured)
    spreads = sorted((p["high_s"] - p["low_s"]) / p["median_s"] for p in points.values())
    second_axis = (0.0,) if second == [None] else tuple(float(y) for y in second if y is not None)
    return Table(
        name, tuple(map(float, first)), second_axis, tuple(map(tuple, seconds.tolist())),
        spreads[len(spreads) // 2], float(np.abs(seconds / measured - 1).max()),
    )  # fmt: skip
