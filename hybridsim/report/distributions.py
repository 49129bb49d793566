"""Figures from the rows of single runs: distributions over requests, time series over steps."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hybridsim.config import PlotConfig
from hybridsim.errors import UserError
from hybridsim.report.curves import lines, split, subtitle, title_of
from hybridsim.report.figure import Axis, Figure, Panel, Scale, Series, Style
from hybridsim.report.tables import Results
from hybridsim.report.units import in_unit_for, key_label, quantity

_MAX_POINTS = 400
REQUEST_TIMES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")
STEP_COLUMNS = (
    "num_running", "num_waiting", "num_prefill_tokens", "num_decode_tokens", "kv_bytes",
    "state_bytes",
)  # fmt: skip
_PER_SECOND = {
    "num_prefill_tokens": "Prefill tokens per second",
    "num_decode_tokens": "Decode tokens per second",
}


def cdf(results: Results, plot: PlotConfig) -> Figure:
    """Share of requests at or below a time, for each value of the line key."""
    columns = plot.y or ("ttft_s",)
    _check(columns, REQUEST_TIMES, results)
    results = results.timed
    panels = [
        _cdf_panel(results, title, list(lines(rows, plot.line, results.summary)), column)
        for column in columns
        for title, rows in split(results, [plot.line])
    ]
    title = title_of(columns)
    name = "-".join(["cdf", *columns, *(["by", plot.line] if plot.line else [])])
    legend = key_label(plot.line) if plot.line else ""
    note = "Refused requests are left out."
    return Figure(name, title, panels, legend, subtitle(results), note)


def _cdf_panel(
    results: Results, title: str, chosen: Sequence[tuple[int, str, pd.DataFrame]], column: str
) -> Panel:
    values = [(color, label, _values(results, part, column)) for color, label, part in chosen]
    unit = in_unit_for(column, max((v[-1] for _, _, v in values if len(v)), default=0.0))
    series = [
        _cdf_series(label or "all requests", each * unit.factor, color)
        for color, label, each in values
    ]
    x = Axis(f"{unit.axis_label}, log scale", Scale.LOG)
    return Panel(title, x, Axis("Requests at or below (%)", range=(0.0, 102.0)), series)


def steps(results: Results, plot: PlotConfig) -> Figure:
    """What the server did over time: a row of panels for each column."""
    columns = plot.y or STEP_COLUMNS
    _check(columns, STEP_COLUMNS, results)
    results = results.timed
    parts = [
        (title, list(lines(rows, plot.line, results.summary)))
        for title, rows in split(results, [plot.line])
    ]
    tables = {run: results.steps(run) for run in results.summary["run"]}
    panels = [
        _steps_panel(title, chosen, tables, column) for column in columns for title, chosen in parts
    ]
    legend = key_label(plot.line) if plot.line else ""
    name = "-".join(["steps", *plot.y, *(["by", plot.line] if plot.line else [])])
    note = "Means over equal stretches of time, idle time included."
    return Figure(
        name,
        "The server over time",
        panels,
        legend,
        subtitle(results),
        note,
        num_columns=len(parts) if len(parts) > 1 else None,
    )


def _steps_panel(
    title: str,
    chosen: Sequence[tuple[int, str, pd.DataFrame]],
    tables: dict[str, pd.DataFrame],
    column: str,
) -> Panel:
    series = [
        _time_series(label or column, tables[run], column, color)
        for color, label, part in chosen
        for run in part["run"]
    ]
    label = _PER_SECOND.get(column) or quantity(column).axis_label
    highest = max((max(one.y, default=0.0) for one in series), default=0.0)
    y = Axis(label, range=(0.0, highest * 1.06 or 1.0))
    return Panel(title, Axis("Time since the first arrival (s)"), y, series)


def _values(results: Results, rows: pd.DataFrame, column: str) -> np.ndarray:
    parts = [results.requests(run)[column].dropna().to_numpy(float) for run in rows["run"]]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0)


def _cdf_series(label: str, values: np.ndarray, color: int) -> Series:
    """At most _MAX_POINTS points of the empirical distribution, both ends kept.

    Times of zero cannot stand on a log axis; they are drawn at the smallest time above it.
    """
    if not len(values):
        return Series(label, [], [], color, Style.STEP)
    positive = values[values > 0]
    floor = float(positive[0]) if len(positive) else 1e-9
    picked = np.unique(np.linspace(0, len(values) - 1, _MAX_POINTS).astype(int))
    shares = (picked + 1) * 100.0 / len(values)
    return Series(
        label, np.maximum(values[picked], floor).tolist(), shares.tolist(), color, Style.STEP
    )


def _time_series(label: str, table: pd.DataFrame, column: str, color: int) -> Series:
    """Time-weighted means of a column in equal bins; work divided by time for tokens."""
    starts_s = table["start_s"].to_numpy(float)
    ends_s = starts_s + table["duration_s"].to_numpy(float)
    if not len(table) or ends_s[-1] <= starts_s[0]:  # nothing ran, or in no time
        return Series(label, [], [], color, Style.STEP)
    first_s, last_s = float(starts_s[0]), float(ends_s[-1])
    edges = np.linspace(first_s, last_s, 201)
    values = table[column].to_numpy(float)
    amounts = values if column in _PER_SECOND else values * (ends_s - starts_s)
    # The running sum at any time, straight within a step and level between steps.
    knots = np.column_stack([starts_s, ends_s]).ravel()
    sums = np.column_stack([np.cumsum(amounts) - amounts, np.cumsum(amounts)]).ravel()
    means = np.diff(np.interp(edges, knots, sums)) / np.diff(edges)
    factor = quantity(column).factor
    return Series(label, edges[:-1].tolist(), (means * factor).tolist(), color, Style.STEP)


def _check(columns: Sequence[str], allowed: Sequence[str], results: Results) -> None:
    if not results.is_timed:
        raise UserError("plots", "cdf and steps need times; allowed: mode: timed")
    for column in columns:
        if column not in allowed:
            raise UserError("plots", f"{column!r} is not allowed; allowed: {', '.join(allowed)}")
