"""Metrics of the summary over a swept key: one line a policy, one panel for each other choice."""

from collections.abc import Iterator, Sequence

import pandas as pd

from hybridsim.config import PlotConfig, value_at
from hybridsim.errors import UserError
from hybridsim.report.figure import Figure, Level, Panel, Series, Style
from hybridsim.report.tables import Results
from hybridsim.report.units import XAxis, key_label, quantity, x_axis, y_axis

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
        _note(plot.y),
    )


def title_of(columns: Sequence[str]) -> str:
    """`Token match rate and token hit rate`."""
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
        yield ", ".join(f"{k} = {v}" for k, v in zip(others, values, strict=True)), rows


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
    series: list[Series] = []
    for color, value, chosen in lines(rows, plot.line, whole):
        for column in plot.y:
            label = value or quantity(column).label
            # of several metrics the last is the one in question, the others stand behind it
            style = Style.LINE if column == plot.y[-1] else Style.FAINT
            if style == Style.FAINT:
                label = quantity(column).label
            series.extend(_series(label, chosen, plot, column, x, color, style))
    factor = quantity(plot.y[0]).factor
    levels = _ceilings(rows, factor) if _UNDER_CEILING & set(plot.y) else []
    tops = [*whole[list(plot.y)].max() * factor, *(level.y for level in levels)]
    y = y_axis(plot.y, [top for top in tops if top == top])
    return Panel(title, x.axis, y, series, levels)


def _series(
    label: str,
    rows: pd.DataFrame,
    plot: PlotConfig,
    column: str,
    x: XAxis,
    color: int,
    style: Style,
) -> Iterator[Series]:
    """The points in order; those set apart on the axis are not joined to the others."""
    known = rows[rows[column].notna() & rows[plot.x].notna()]
    for is_apart in (False, True):
        points = sorted(
            (x.positions[value], y * quantity(column).factor)
            for value, y in zip(known[plot.x], known[column], strict=True)
            if (value in x.apart) == is_apart
        )
        if points:
            yield Series(label, [p[0] for p in points], [p[1] for p in points], color, style)


def _ceilings(rows: pd.DataFrame, factor: float) -> list[Level]:
    values = sorted(set(rows[CEILING].dropna().round(6)))
    return [Level(f"infinite cache: {value * factor:.2f} %", value * factor) for value in values]


def _check_columns(summary: pd.DataFrame, columns: Sequence[str]) -> None:
    numeric = [str(c) for c in summary.select_dtypes("number").columns]
    for column in columns:
        if column not in numeric:
            allowed = ", ".join(numeric)
            raise UserError("plots", f"{column!r} is no metric of the summary; allowed: {allowed}")


def _note(columns: Sequence[str]) -> str:
    if set(columns) >= _UNDER_CEILING:
        return "Solid: tokens really reused (hit). Dotted: tokens whose KV was resident (match)."
    return ""
