"""Draws a figure into a PNG with matplotlib."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from hybridsim.drawing import COLORS, GREY
from hybridsim.errors import shorten
from hybridsim.report.figure import (
    BAR_COLORS,
    MARKERS,
    Axis,
    Figure,
    Level,
    Panel,
    Scale,
    Series,
    Style,
)
from hybridsim.ticks import plain_log

_TITLE_INCHES, _NOTE_INCHES, _NAME_INCHES = 0.72, 0.2, 0.25
_DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)))
_LIGHT = "#c9ccd0"


def draw_png(figure: Figure, path: Path) -> None:
    """Write `path`; the picture depends on the figure alone."""
    num_columns = figure.num_columns or _num_columns(len(figure.panels))
    legend = _legend_entries(figure)
    canvas = _canvas(figure, num_columns, has_legend=bool(legend))
    grid = canvas.subplots(_num_rows(figure, num_columns), num_columns, squeeze=False)
    cells: list[Axes] = list(grid.ravel())
    for panel, axes in zip(figure.panels, cells, strict=False):
        _draw_panel(panel, axes, is_small=figure.shares_axes)
    for axes in cells[len(figure.panels) :]:
        axes.set_visible(False)
    if figure.shares_axes:
        _share_axes(figure, canvas, cells, num_columns)
    _write_around(figure, canvas)
    if legend:
        _draw_legend(legend, figure, canvas)
    canvas.savefig(path, metadata={"Software": None})


def _canvas(figure: Figure, num_columns: int, *, has_legend: bool) -> Canvas:
    """Room for the panels, with bands of their own for the title above and the note below."""
    above, below = _TITLE_INCHES, _note_inches(figure) + _NAME_INCHES * figure.shares_axes
    width = figure.panel_inches[0] * num_columns + (2.2 if has_legend else 0.4)
    height = figure.panel_inches[1] * _num_rows(figure, num_columns) + 0.9 + below
    rect = (0, below / height, 1, 1 - (above + below) / height)
    return Canvas(figsize=(width, height), dpi=150, layout=ConstrainedLayoutEngine(rect=rect))


def _write_around(figure: Figure, canvas: Canvas) -> None:
    """Title and subtitle in the band above the panels, the note in the one below."""
    inch = 1 / canvas.get_figheight()
    canvas.text(0.015, 1 - 0.14 * inch, figure.title, fontsize=13, fontweight="bold", va="top")
    canvas.text(0.015, 1 - 0.42 * inch, figure.subtitle, fontsize=9, color=GREY, va="top")
    canvas.text(0.015, 0.06 * inch, figure.note, fontsize=8.5, color=GREY, va="bottom")


def _note_inches(figure: Figure) -> float:
    return _NOTE_INCHES * len(figure.note.splitlines())


def _num_columns(num_panels: int) -> int:
    return num_panels if num_panels <= 2 else 2 if num_panels <= 4 else 3


def _num_rows(figure: Figure, num_columns: int) -> int:
    return ceil(len(figure.panels) / num_columns)


def _share_axes(figure: Figure, canvas: Canvas, cells: Sequence[Axes], num_columns: int) -> None:
    """Names of the axes once, numbers at the outer edges only; a line's last value above it."""
    at = (_note_inches(figure) + 0.04) / canvas.get_figheight()
    canvas.supxlabel(figure.panels[0].x.label, fontsize=9.5, y=at, va="bottom")
    names = dict.fromkeys(panel.y.label for panel in figure.panels)
    canvas.supylabel(next(iter(names)) if len(names) == 1 else "", fontsize=9.5)
    for index, panel in enumerate(figure.panels):
        axes, column = cells[index], index % num_columns
        is_new = column == 0 or panel.y != figure.panels[index - 1].y
        is_lowest = index + num_columns >= len(figure.panels)
        axes.set_xlabel("")
        axes.set_ylabel("")
        axes.tick_params(axis="y", which="both", labelleft=is_new)
        axes.tick_params(axis="x", which="both", labelbottom=is_lowest)
        axes.xaxis.set_minor_formatter(NullFormatter())
        last = next((one for one in panel.series if one.style == Style.LINE), None)
        if last is not None:
            axes.set_title(f"{last.y[-1]:.1f}", fontsize=9, loc="right", color=COLORS[last.color])


def _draw_panel(panel: Panel, axes: Axes, *, is_small: bool) -> None:
    for series in panel.series:
        if series.style != Style.BAR:
            axes.plot(series.x, series.y, **_look(series))
    _draw_bars([series for series in panel.series if series.style == Style.BAR], axes)
    above = 4 if any(series.style == Style.BAR for series in panel.series) else 1
    for band in panel.bands:
        axes.fill_between(band.x, band.low, band.high, color=GREY, alpha=0.35, zorder=above)
        axes.plot(band.x, band.high, color=GREY, linewidth=1.4, zorder=above)
    for level in panel.levels:
        axes.axhline(level.y, color=GREY, linestyle=(0, (6, 3)), linewidth=1.3, zorder=1)
        if is_small:
            continue
        axes.annotate(
            level.label,
            (0.01, level.y),
            xycoords=("axes fraction", "data"),
            xytext=(2, 3),
            textcoords="offset points",
            fontsize=8.5,
            color=GREY,
        )
    _set_axis(axes, panel.x, "x")
    _set_axis(axes, panel.y, "y")
    if panel.title:
        axes.set_title(_short(panel.title), fontsize=9 if is_small else 10, loc="left")
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
            color=BAR_COLORS[series.color % len(BAR_COLORS)],
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
    if series.style == Style.CONTEXT:
        return {"color": _LIGHT, "linewidth": 0.9, "zorder": 2}
    if series.style == Style.STEP:
        # the later ones thinner, so that lines that coincide can all be seen
        return look | {"linewidth": max(1.2, 2.6 - 0.35 * series.color)}
    if series.style == Style.BAR:
        color = BAR_COLORS[series.color % len(BAR_COLORS)]
        return {"color": color, "linewidth": 7.0}  # its patch in the legend
    look |= {"marker": MARKERS[series.color % len(MARKERS)], "markersize": 5.5}
    if series.style == Style.FAINT:
        look |= {"alpha": 0.4, "linewidth": 1.2, "markersize": 4, "linestyle": (0, (1.5, 1.5))}
    if series.style in (Style.POINT, Style.FAINT_POINT):
        look |= {"linestyle": "", "markersize": 8}
    if series.style == Style.FAINT_POINT:
        look |= {"markerfacecolor": "none", "alpha": 0.6}
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
        target.set_ticklabels(list(map(_short, axis.ticks.values())), **rotation)
    elif axis.scale == Scale.LOG:
        plain_log(target)
    if axis.range is not None:
        getattr(axes, f"set_{which}lim")(*axis.range)
    axes.tick_params(axis="x" if which == "x" else "y", labelsize=9)


def _legend_entries(figure: Figure) -> list[Line2D]:
    """Each label once over all panels: lines by colour, then what stands in grey."""
    lines: dict[str, Series] = {}
    grey: dict[str, Line2D] = {}
    for series in (series for panel in figure.panels for series in panel.series):
        look = _look(series)
        if series.style in (Style.FAINT, Style.FAINT_POINT):
            look |= {"color": GREY, "alpha": 0.8}
            look |= {"marker": ""} if series.style == Style.FAINT else {"marker": "o"}
            grey.setdefault(series.label, Line2D([], [], label=series.label, **look))
        elif series.style != Style.CONTEXT and not figure.shares_axes:
            lines.setdefault(series.label, series)
    for band in (band for panel in figure.panels for band in panel.bands):
        line = Line2D([], [], label=band.label, color=GREY, linewidth=1.4)
        grey.setdefault(band.label, line)
    if figure.shares_axes:
        grey |= {
            level.label: _level_entry(level) for panel in figure.panels for level in panel.levels
        }
    ordered = sorted(lines.values(), key=lambda series: series.color)
    entries = [Line2D([], [], label=_short(series.label), **_look(series)) for series in ordered]
    return [*entries, *grey.values()] if len(entries) + len(grey) > 1 else []


def _short(label: str) -> str:
    """A value may be a whole mapping, which would leave the panels no room."""
    return shorten(label, 48)


def _level_entry(level: Level) -> Line2D:
    return Line2D([], [], label=level.label, color=GREY, linestyle=(0, (6, 3)), linewidth=1.3)


def _draw_legend(entries: Sequence[Line2D], figure: Figure, canvas: Canvas) -> None:
    """Outside of the data."""
    canvas.legend(
        handles=entries,
        loc="outside right center",
        title=figure.legend_title or None,
        fontsize=9,
        title_fontsize=9,
        frameon=False,
        alignment="left",
    )
