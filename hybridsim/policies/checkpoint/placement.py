"""The best places for M states, given how deep later prompts are known to overlap.

For an overlap of L tokens the tokens after the deepest state at or above L are computed again.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Choices = NDArray[np.int64]


class Plan(NamedTuple):
    """`costs[m, j]`: least expected tokens computed again over overlaps `depths[:j + 1]` with m
    states. `choices[m, j]`: row of the deepest of these states; -1 where none is worth having.
    """

    costs: FloatArray
    choices: Choices


def solve(depths: FloatArray, weights: FloatArray, num_states: int) -> Plan:
    """Minimise sum of weights x (depth - deepest state at or above). O(rows x num_states).

    depths: [rows] rising token positions > 0 with weights > 0; some best placement lies on them,
    since moving a state down to the next depth loses nothing. Adding a state at depth s to those
    before it costs, up to row j, D[m-1][s-1] + sum of w (L - s): a line in the weight seen up to
    j, of slope -depth[s]. Slopes fall as s rises and the queries rise with j, so each layer is one
    pass along a lower envelope.
    """
    mass, moment = np.cumsum(weights), np.cumsum(weights * depths)
    num_rows = len(depths)
    costs = np.empty((num_states + 1, num_rows))
    choices = np.full((num_states + 1, num_rows), -1, dtype=np.int64)
    costs[0] = moment
    for layer in range(1, num_states + 1):
        before = np.concatenate(([0.0], costs[layer - 1][:-1]))
        mass_before = np.concatenate(([0.0], mass[:-1]))
        moment_before = np.concatenate(([0.0], moment[:-1]))
        intercepts = before - moment_before + depths * mass_before
        lowest, rows = _lower_envelope(-depths, intercepts, mass)
        costs[layer] = moment + lowest
        choices[layer] = rows
    return Plan(costs, choices)


def places(plan: Plan, depths: FloatArray, num_states: int, last_row: int) -> list[float]:
    """Positions of the best `num_states` states for overlaps up to `depths[last_row]`, rising."""
    positions: list[float] = []
    row, layer = last_row, num_states
    while layer and row >= 0:
        row = int(plan.choices[layer, row])
        positions.append(float(depths[row]))
        row, layer = row - 1, layer - 1
    return positions[::-1]


def _lower_envelope(
    slopes: FloatArray, intercepts: FloatArray, queries: FloatArray
) -> tuple[FloatArray, Choices]:
    """For each row j the least value of lines 0..j at queries[j], and which line gives it.

    Slopes fall, queries do not. Amortised O(1) a row: a line leaves the deque once.
    """
    lines: list[int] = []
    first = 0
    slope, intercept, query = slopes.tolist(), intercepts.tolist(), queries.tolist()
    lowest, rows = [], []
    for row, x in enumerate(query):
        while len(lines) - first >= 2 and _is_hidden(slope, intercept, lines[-2], lines[-1], row):
            lines.pop()
        lines.append(row)
        first = min(first, len(lines) - 1)
        while first + 1 < len(lines) and _value(slope, intercept, lines[first + 1], x) <= _value(
            slope, intercept, lines[first], x
        ):
            first += 1
        lowest.append(_value(slope, intercept, lines[first], x))
        rows.append(lines[first])
    return np.array(lowest), np.array(rows, dtype=np.int64)


def _value(slope: list[float], intercept: list[float], line: int, x: float) -> float:
    return slope[line] * x + intercept[line]


def _is_hidden(
    slope: list[float], intercept: list[float], left: int, middle: int, right: int
) -> bool:
    """Whether `middle` is nowhere below both others; slopes fall from left to right."""
    return (intercept[right] - intercept[left]) * (slope[left] - slope[middle]) <= (
        intercept[middle] - intercept[left]
    ) * (slope[left] - slope[right])


def expected_replay(depths: FloatArray, weights: FloatArray, positions: list[float]) -> float:
    """Sum of weights x tokens computed again with states at `positions` (rising)."""
    bounds = [0.0, *positions, np.inf]
    return float(
        sum(
            (weights * (depths - low))[(depths >= low) & (depths < high)].sum()
            for low, high in pairwise(bounds)
        )
    )
