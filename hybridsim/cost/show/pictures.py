"""Figures of `hybridsim cost show`: parts over their grids, whole steps, typical steps."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hybridsim.cost.parts import PARTS
from hybridsim.cost.show.points import PartPoint, StepPoint, in_order, predicted_s
from hybridsim.cost.show.subject import Subject
from hybridsim.cost.step_figure import StepColumn, figure_of
from hybridsim.drawing import COLORS
from hybridsim.ticks import plain_log

_MOST_LINES = 5
_LINE_POINTS = 60


def draw_parts(subject: Subject, points: Sequence[PartPoint], path: Path) -> None:
    """A panel a part: measured medians with their spread, interpolation, roofline."""
    parts = list(dict.fromkeys(point.part for point in points))
    num_columns = min(4, len(parts))
    num_rows = ceil(len(parts) / num_columns)
    figure = Figure(figsize=(4.1 * num_columns, 3.5 * num_rows + 0.7), layout="constrained")
    panels = list(figure.subplots(num_rows, num_columns, squeeze=False).flat)
    for part, axes in zip(parts, panels, strict=False):
        _draw_part(subject, [point for point in points if point.part == part], axes)
    for axes in panels[len(parts) :]:
        axes.set_visible(False)
    figure.suptitle(
        f"{subject.name}: parts of a step. Points: measured (bars: 20 to 80 % of replays). "
        "Solid: interpolated. Dashed: roofline.",
        fontsize=11,
    )
    figure.savefig(path, dpi=80)


def _draw_part(subject: Subject, points: Sequence[PartPoint], axes: Axes) -> None:
    part = points[0].part
    names = PARTS[part].axes
    # Attention over contexts is the one part that is read along its second axis.
    across = 1 if part == "full_decode" else 0
    other = 1 - across if len(names) > 1 else None
    if other is None:
        _draw_line(subject, points, across, COLORS[0], axes)
    else:
        for color, value in zip(COLORS, _some({p.at[other] for p in points}), strict=False):
            mine = [point for point in points if point.at[other] == value]
            _draw_line(subject, mine, across, color, axes)
            axes.plot([], [], color=color, label=f"{value:,}")
    axes.set(xscale="log", yscale="log", title=part, xlabel=names[across], ylabel="ms")
    for axis in (axes.xaxis, axes.yaxis):
        plain_log(axis)
    axes.grid(True, color="#e6e6e6", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    if other is not None:
        axes.legend(title=names[other], fontsize=7, title_fontsize=8, frameon=False)


def _some(found: set[int]) -> list[int]:
    """A few of many values, the outer two among them."""
    values = sorted(found)
    places = np.linspace(0, len(values) - 1, min(_MOST_LINES, len(values))).round().astype(int)
    return [values[place] for place in places]


def _draw_line(
    subject: Subject, points: Sequence[PartPoint], across: int, color: str, axes: Axes
) -> None:
    x = np.array([max(point.at[across], 1) for point in points])
    y, low, high = (
        np.array([getattr(point, name) for point in points]) * 1e3
        for name in ("measured_s", "low_s", "high_s")
    )
    bars = np.abs(np.stack([y - low, high - y]))
    axes.errorbar(x, y, bars, fmt=".", color=color, markersize=5, linewidth=1)
    between = np.unique(np.geomspace(x.min(), x.max(), _LINE_POINTS).round().astype(int))
    at = list(points[0].at)
    lines = []
    for place in between:
        at[across] = int(place)
        lines.append(predicted_s(subject, points[0].part, tuple(at)))
    axes.plot(between, [1e3 * one for one, _ in lines], color=color, linewidth=1)
    floors = [1e3 * floor for _, floor in lines if floor is not None]
    if floors:
        axes.plot(between, floors, color=color, linewidth=1, linestyle=(0, (4, 2)))


def draw_steps(title: str, points: Sequence[StepPoint], path: Path) -> None:
    """Predicted against measured milliseconds of whole steps, and relative errors below."""
    columns = {
        "measured model": [point.measured_model_s for point in points],
        "roofline": [point.roofline_s for point in points],
    }
    predicted = {
        name: np.array(seconds, dtype=float)
        for name, seconds in columns.items()
        if seconds[0] is not None
    }
    measured = np.array([point.measured_s for point in points])
    figure_of([StepColumn(title, measured, predicted)]).savefig(path)


def draw_typical(title: str, steps: Mapping[str, Mapping[str, float]], path: Path) -> None:
    """A bar a step, its time shared out among the parts."""
    figure = Figure(figsize=(8.6, 0.55 * len(steps) + 1.6), layout="constrained")
    axes = figure.subplots()
    names = in_order(steps)
    left = np.zeros(len(steps))
    totals = np.array([sum(parts.values()) for parts in steps.values()])
    for index, name in enumerate(names):
        shares = np.array([parts.get(name, 0.0) for parts in steps.values()]) / totals
        color = COLORS[index % len(COLORS)]
        hatch = "///" if index >= len(COLORS) else None
        axes.barh(list(steps), shares, left=left, color=color, label=name, hatch=hatch)
        left += shares
    for place, total in enumerate(totals):
        axes.text(1.01, place, f"{total * 1e3:.3g} ms", va="center", fontsize=9)
    axes.set(xlim=(0, 1), xlabel="share of the step", title=title)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)
