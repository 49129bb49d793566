"""Sums over steps of the larger of two straight lines, without visiting the steps."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """start + slope * i."""

    start: float
    slope: float

    def at(self, i: int) -> float:
        return self.start + self.slope * i

    def sum(self, first: int, last: int) -> float:
        """Over i in [first, last): the number of terms times their mean."""
        return (last - first) * (self.start + self.slope * (first + last - 1) / 2)


def sum_of_larger(one: Line, other: Line, num_steps: int) -> float:
    """Sum over i in [0, num_steps) of max(one, other), in O(log num_steps).

    Two lines cross once at most: the steps are cut there, by bisection on the comparison itself.
    """
    if num_steps <= 0:
        return 0.0
    low, high = (one, other) if one.slope <= other.slope else (other, one)
    # `high` climbs faster: before the cut `low` is at least as large, from the cut on `high` is.
    cut = bisect_left(range(num_steps), True, key=lambda i: high.at(i) > low.at(i))
    return low.sum(0, cut) + high.sum(cut, num_steps)
