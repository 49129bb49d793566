"""Metrics of the summary over a swept key: one line a policy, one panel for each other choice."""

from collections.abc import Iterator, Sequence

import pandas as pd

from hybridsim.config import PlotConfig, value_at
from hybridsim.errors import UserError
from hybridsim.report.bands import TIMED_NOTE, brackets
from hybridsim.report.figure import Figure, Level, Panel, Series, Style
from hybridsim.report.tables import Results
from hybridsim.report.units import XAxis, in_unit_for, key_label, quantity, x_axis, y_axis

CEILING = "ceiling_token_hit_rate"
_UNDER_CEILING = {"token_hit_rate", "token_match_rate"}


def curve(results: Results, plot: PlotConfig) -> Figure:
    """The figure of `{x, y, line}`. Raises UserError for a metric that the summary lacks."""
    assert plot.x is not None
    _check_columns(results.summary, plot.y)
    axis = x_axis(plot.x, list(results.summary[plot.x].dropna().unique()))
    panels = [
        _panel(title, rows, plot, axis, results.summary)
        for title, rows in split(results, [plot.x, plot.line])
    ]
    what = title_of(plot.y)
    name = "-".join([*plot.y, "over", plot.x, *(["by", plot.line] if plot.line else [])])
    return Figure(
        name,
        f"{what} over {key_label(plot.x)}",
        panels,
        key_label(plot.line) if plot.line else "",
        subtitle(results),
        _note(plot.y, is_timed=results.is_timed, is_named=axis.is_named),
    )


def title_of(columns: Sequence[str]) -> str:
    """`Token match rate and token hit rate`."""
    if set(columns) == _UNDER_CEILING:
        return "Match and hit rate"
    first, *others = [quantity(column).label for column in columns]
    return " and ".join([first, *(other[0].lower() + other[1:] for other in others)])


def subtitle(results: Results) -> str:
    """Trace, model and mode, as far as all runs share them."""
    parts = []
    traces = {
        (meta["trace"]["name"], meta["trace"]["num_requests"]) for meta in results.metas.values()
    }
    if len(traces) == 1:
        name, num_requests = traces.pop()
        parts.append(f"{name}, {num_requests:,} requests")
    for key in ("model", "engine", "gpu", "mode"):
        value = value_at(results.experiment.runs[0].config, key)
        is_default = key == "engine" and value == "research" or value is None
        is_used = key != "gpu" or results.is_timed
        if key not in results.axes and is_used and not is_default:
            parts.append(str(value))
    return " \u00b7 ".join(parts)


def split(results: Results, drawn: Sequence[str | None]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The summary in parts, one for each choice of the swept keys that are not drawn."""
    others = [key for key in results.axes if key not in drawn]
    if not others:
        yield "", results.summary
        return
    for values, rows in results.summary.groupby(others, sort=False, dropna=False):
        yield ", ".join(f"{key_label(k)} {v}" for k, v in zip(others, values, strict=True)), rows


def lines(
    rows: pd.DataFrame, key: str | None, whole: pd.DataFrame
) -> Iterator[tuple[int, str, pd.DataFrame]]:
    """Colour, label and rows of each line; a value has the same colour in every panel."""
    if key is None:
        yield 0, "", rows
        return
    for color, value in enumerate(whole[key].unique()):
        chosen = rows[rows[key] == value]
        if len(chosen):
            yield color, str(value), chosen


def _panel(
    title: str, rows: pd.DataFrame, plot: PlotConfig, x: XAxis, whole: pd.DataFrame
) -> Panel:
    highest = float(whole[list(plot.y)].max().max())
    units = {column: in_unit_for(column, highest) for column in plot.y}
    series: list[Series] = []
    for color, value, chosen in lines(rows, plot.line, whole):
        for column, unit in units.items():
            # of several metrics the last is the one in question, the others stand behind it
            is_main = column == plot.y[-1]
            label = value if value and is_main else unit.label
            points = _points(chosen, plot.x or "", column, x, unit.factor)
            style = _style(is_main=is_main, is_named=x.is_named)
            series.extend(Series(label, *part, color, style) for part in points)
    levels = _ceilings(rows) if _UNDER_CEILING & set(plot.y) else []
    highest *= units[plot.y[-1]].factor
    highest = max([highest, *(level.y for level in levels)])
    bands = brackets(rows, plot.x or "", x) if "token_hit_rate" in plot.y else []
    y = y_axis(list(units.values()), highest)
    return Panel(title, x.axis, y, series, levels, bands)


def _style(*, is_main: bool, is_named: bool) -> Style:
    if is_named:
        return Style.POINT if is_main else Style.FAINT_POINT
    return Style.LINE if is_main else Style.FAINT


def _points(
    rows: pd.DataFrame, key: str, column: str, x: XAxis, factor: float
) -> Iterator[tuple[list[float], list[float]]]:
    """x and y in order; values that are set apart on the axis come as a part of their own."""
    known = rows[rows[column].notna() & rows[key].notna()]
    for is_apart in (False, True):
        points = sorted(
            (x.positions[value], y * factor)
            for value, y in zip(known[key], known[column], strict=True)
            if (value in x.apart) == is_apart
        )
        if points:
            yield [point[0] for point in points], [point[1] for point in points]


def _ceilings(rows: pd.DataFrame) -> list[Level]:
    values = sorted(set((rows[CEILING].dropna() * 100).round(4)))
    return [Level(f"infinite cache: {value:.2f} %", value) for value in values]


def _check_columns(summary: pd.DataFrame, columns: Sequence[str]) -> None:
    numeric = [str(c) for c in summary.select_dtypes("number").columns]
    for column in columns:
        if column not in numeric:
            allowed = ", ".join(numeric)
            raise UserError("plots", f"{column!r} is no metric of the summary; allowed: {allowed}")


def _note(columns: Sequence[str], *, is_timed: bool, is_named: bool) -> str:
    notes = []
    if set(columns) >= _UNDER_CEILING:
        hit, match = ("Filled", "Hollow") if is_named else ("Solid", "Dotted")
        notes.append(f"{hit}: tokens really reused (hit). {match}: KV was resident (match).")
    if is_timed and "token_hit_rate" in columns:
        notes.append(TIMED_NOTE)
    return "\n".join(notes)
