"""The figure of whole steps: predicted against measured, and the relative errors below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hybridsim.drawing import COLORS
from hybridsim.ticks import plain_log

MODEL_COLORS = {"measured model": COLORS[0], "roofline": COLORS[1]}


@dataclass(frozen=True, slots=True)
class StepColumn:
    """Steps side by side with those of other columns: `measured_s`, `[num_steps]`.

    `predicted_s`: by the name of a cost model (those of `MODEL_COLORS`), `[num_steps]` each.
    """

    title: str
    measured_s: np.ndarray
    predicted_s: Mapping[str, np.ndarray]


def figure_of(columns: Sequence[StepColumn]) -> Figure:
    """Side by side, in milliseconds and percent, over the same range."""
    width = 6.4 if len(columns) == 1 else 4.2 * len(columns)
    figure = Figure(figsize=(width, 7.2), dpi=120, layout="constrained")
    rows = figure.subplots(
        2, len(columns), height_ratios=[3, 1.5], sharex="col", sharey="row", squeeze=False
    )
    everything = np.concatenate([column.measured_s for column in columns])
    limits_ms = [everything.min() * 900, everything.max() * 1100]
    for column, above, below in zip(columns, *rows, strict=True):
        above.loglog(limits_ms, limits_ms, color="0.6", linewidth=1)
        _draw_column(column, above, below)
    rows[0, 0].set_ylabel("predicted step (ms)")
    rows[0, 0].legend(frameon=False)
    rows[1, 0].set_ylabel("error (%)")
    return figure


def _draw_column(column: StepColumn, above: Axes, below: Axes) -> None:
    measured_ms = column.measured_s * 1e3
    below.axhspan(-3, 3, color="0.9")
    for name, predicted_s in reversed(list(column.predicted_s.items())):  # the first lies on top
        color, error = MODEL_COLORS[name], predicted_s / column.measured_s - 1
        above.loglog(measured_ms, predicted_s * 1e3, ".", color=color, markersize=5, label=name)
        below.semilogx(measured_ms, error * 100, ".", color=color, markersize=5)
    above.set_title(column.title)
    below.set_xlabel("measured step (ms)")
    for axis in (above.xaxis, above.yaxis):
        plain_log(axis)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
