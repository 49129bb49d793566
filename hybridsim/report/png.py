"""Draws a figure into a PNG with matplotlib."""

from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from hybridsim.report.figure import COLORS, MARKERS, Axis, Figure, Panel, Scale, Series, Style

_PANEL_INCHES = (5.4, 3.7)
_TITLE_INCHES = 0.72
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)))
_GREY = "#5f6368"


def draw_png(figure: Figure, path: Path) -> None:
    """Write `path`; the picture depends on the figure alone."""
    num_columns = figure.num_columns or _num_columns(len(figure.panels))
    num_rows = ceil(len(figure.panels) / num_columns)
    width = _PANEL_INCHES[0] * num_columns + 2.2
    height = _PANEL_INCHES[1] * num_rows + 0.9
    # the uppermost inches are the title's own
    layout = ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - _TITLE_INCHES / height))
    canvas = Canvas(figsize=(width, height), dpi=150, layout=layout)
    grid = canvas.subplots(num_rows, num_columns, squeeze=False)
    cells: Iterator[Axes] = iter(grid.ravel())
    for panel, axes in zip(figure.panels, cells, strict=False):
        _draw_panel(panel, axes)
    for axes in cells:
        axes.set_visible(False)
    _title(figure, canvas, height)
    _legend(figure, canvas)
    if figure.note:
        canvas.supxlabel(figure.note, fontsize=8.5, color=_GREY, x=0.02, ha="left")
    canvas.savefig(path, metadata={"Software": None})


def _title(figure: Figure, canvas: Canvas, height: float) -> None:
    """Two lines in a band of their own above the panels."""
    canvas.text(0.015, 1 - 0.14 / height, figure.title, fontsize=13, fontweight="bold", va="top")
    canvas.text(0.015, 1 - 0.42 / height, figure.subtitle, fontsize=9, color=_GREY, va="top")


def _num_columns(num_panels: int) -> int:
    return num_panels if num_panels <= 2 else 2 if num_panels <= 4 else 3


def _draw_panel(panel: Panel, axes: Axes) -> None:
    for series in panel.series:
        if series.style != Style.BAR:
            axes.plot(series.x, series.y, **_look(series))
    _draw_bars([series for series in panel.series if series.style == Style.BAR], axes)
    above = 4 if any(series.style == Style.BAR for series in panel.series) else 1
    for band in panel.bands:
        axes.fill_between(band.x, band.low, band.high, color=_GREY, alpha=0.35, zorder=above)
        axes.plot(band.x, band.high, color=_GREY, linewidth=1.4, zorder=above)
    for level in panel.levels:
        axes.axhline(level.y, color=_GREY, linestyle=(0, (6, 3)), linewidth=1.3, zorder=1)
        axes.annotate(
            level.label,
            (0.01, level.y),
            xycoords=("axes fraction", "data"),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize=8.5,
            color=_GREY,
        )
    _set_axis(axes, panel.x, "x")
    _set_axis(axes, panel.y, "y")
    if panel.title:
        axes.set_title(panel.title, fontsize=10, loc="left")
    axes.grid(True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_bars(bars: Sequence[Series], axes: Axes) -> None:
    bottoms: dict[float, float] = {}
    for series in bars:
        bases = [bottoms.get(x, 0.0) for x in series.x]
        axes.bar(
            series.x,
            series.y,
            bottom=bases,
            width=0.7,
            color=COLORS[series.color % len(COLORS)],
            edgecolor="white",
            linewidth=0.5,
            zorder=3,
        )
        bottoms |= {x: base + y for x, base, y in zip(series.x, bases, series.y, strict=True)}


def _look(series: Series) -> dict[str, Any]:
    look: dict[str, Any] = {
        "color": COLORS[series.color % len(COLORS)],
        "linestyle": _DASHES[series.color // len(COLORS) % len(_DASHES)],
        "linewidth": 1.9,
        "zorder": 3,
    }
    if series.style == Style.STEP:
        # the later ones thinner, so that lines that coincide can all be seen
        return look | {"linewidth": max(1.2, 2.6 - 0.35 * series.color)}
    if series.style == Style.BAR:
        return look | {"linewidth": 7.0, "linestyle": "-"}  # its patch in the legend
    look |= {"marker": MARKERS[series.color % len(MARKERS)], "markersize": 5.5}
    if series.style == Style.FAINT:
        look |= {"alpha": 0.4, "linewidth": 1.2, "markersize": 4, "linestyle": (0, (1.5, 1.5))}
    return look


def _set_axis(axes: Axes, axis: Axis, which: str) -> None:
    scale = {Scale.LINEAR: "linear", Scale.LOG: "log", Scale.LOG2: "log"}[axis.scale]
    options = {"base": 2} if axis.scale == Scale.LOG2 else {}
    getattr(axes, f"set_{which}scale")(scale, **options)
    getattr(axes, f"set_{which}label")(axis.label, fontsize=9.5)
    target = axes.xaxis if which == "x" else axes.yaxis
    if axis.ticks is not None:
        target.set_major_locator(FixedLocator(list(axis.ticks)))
        target.set_minor_locator(NullLocator())
        many = len(axis.ticks) > 8 or any(len(label) > 10 for label in axis.ticks.values())
        rotation: dict[str, Any] = {"rotation": 30, "ha": "right"} if many and which == "x" else {}
        target.set_ticklabels(list(axis.ticks.values()), **rotation)
    elif axis.scale == Scale.LOG:
        target.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if axis.range is not None:
        getattr(axes, f"set_{which}lim")(*axis.range)
    axes.tick_params(axis="x" if which == "x" else "y", labelsize=9)


def _legend(figure: Figure, canvas: Canvas) -> None:
    """Outside of the data, each label once over all panels."""
    labels: dict[str, Series] = {}
    faint: dict[str, Line2D] = {}
    for panel in figure.panels:
        for series in panel.series:
            if series.style == Style.FAINT:
                look = _look(series) | {"color": _GREY, "alpha": 0.8, "marker": ""}
                faint.setdefault(series.label, Line2D([], [], label=series.label, **look))
            else:
                labels.setdefault(series.label, series)
    for band in (band for panel in figure.panels for band in panel.bands):
        line = Line2D([], [], label=band.label, color=_GREY, linewidth=1.4)
        faint.setdefault(band.label, line)
    if len(labels) + len(faint) < 2:
        return
    ordered = sorted(labels.values(), key=lambda series: series.color)
    handles = [Line2D([], [], label=series.label, **_look(series)) for series in ordered]
    canvas.legend(
        handles=[*handles, *faint.values()],
        loc="outside right center",
        title=figure.legend_title or None,
        fontsize=9,
        title_fontsize=9,
        frameon=False,
        alignment="left",
    )
