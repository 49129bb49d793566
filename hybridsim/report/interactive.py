"""The same figures for the report, drawn by plotly in the reader's browser."""

from collections.abc import Sequence
from math import ceil, log10
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hybridsim.drawing import COLORS, GREY
from hybridsim.report.figure import (
    BAR_COLORS,
    PLOTLY_MARKERS,
    Axis,
    Band,
    Figure,
    Panel,
    Scale,
    Series,
    Style,
)

_DASHES = ("solid", "dash", "dot")


def to_plotly(figure: Figure) -> str:
    """An HTML fragment; the page must hold plotly's JavaScript once."""
    num_columns = min(figure.num_columns or 2, len(figure.panels))
    num_rows = ceil(len(figure.panels) / num_columns)
    canvas = make_subplots(
        rows=num_rows,
        cols=num_columns,
        subplot_titles=[panel.title for panel in figure.panels],
        horizontal_spacing=0.1,
        vertical_spacing=min(0.12, 0.3 / num_rows),
    )
    shown: set[str] = set()
    for index, panel in enumerate(figure.panels):
        _draw_panel(canvas, panel, index // num_columns + 1, index % num_columns + 1, shown)
    canvas.update_layout(
        template="plotly_white",
        height=410 * num_rows + 60,
        legend={"title": {"text": figure.legend_title}},
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        hovermode="closest",
        barmode="stack",
    )
    html: str = canvas.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{figure.name}",
        config={"displaylogo": False, "responsive": True},
    )
    return html


def _draw_panel(canvas: Any, panel: Panel, row: int, column: int, shown: set[str]) -> None:
    for series in panel.series:
        canvas.add_trace(_trace(series, series.label not in shown), row=row, col=column)
        shown.add(series.label)
    for band in panel.bands:
        for y, fill in ((band.low, None), (band.high, "tonexty")):
            edge = _edge(band, y, fill, band.label not in shown)
            canvas.add_trace(edge, row=row, col=column)
        shown.add(band.label)
    for level in panel.levels:
        canvas.add_hline(
            level.y,
            line={"dash": "dash", "color": GREY, "width": 1.3},
            annotation_text=level.label,
            annotation_position="top left",
            row=row,
            col=column,
        )
    canvas.update_xaxes(_axis(panel.x), row=row, col=column)
    canvas.update_yaxes(_axis(panel.y), row=row, col=column)


def _trace(series: Series, is_first: bool) -> go.Scatter | go.Bar:
    if series.style == Style.BAR:
        return go.Bar(
            x=list(series.x),
            y=list(series.y),
            name=series.label,
            legendgroup=series.label,
            showlegend=is_first,
            marker={"color": BAR_COLORS[series.color % len(BAR_COLORS)]},
        )
    is_step = series.style == Style.STEP
    is_faint = series.style in (Style.FAINT, Style.FAINT_POINT)
    is_point = series.style in (Style.POINT, Style.FAINT_POINT)
    return go.Scatter(
        x=list(series.x),
        y=list(series.y),
        name=series.label,
        legendgroup=series.label,
        showlegend=is_first and bool(series.label),
        mode="lines" if is_step else "markers" if is_point else "lines+markers",
        opacity=0.4 if is_faint else 1.0,
        line={
            "color": COLORS[series.color % len(COLORS)],
            "dash": "dot" if is_faint else _DASHES[series.color // len(COLORS) % len(_DASHES)],
            "width": 2,
        },
        marker={"symbol": PLOTLY_MARKERS[series.color % len(PLOTLY_MARKERS)], "size": 8},
    )


def _edge(band: Band, y: Sequence[float], fill: str | None, is_first: bool) -> go.Scatter:
    return go.Scatter(
        x=list(band.x),
        y=list(y),
        name=band.label,
        legendgroup=band.label,
        showlegend=is_first and fill is not None,
        mode="lines",
        line={"color": GREY, "width": 1.4 if fill else 0},
        fill=fill,
        fillcolor="rgba(95, 99, 104, 0.3)",
    )


def _axis(axis: Axis) -> dict[str, Any]:
    is_log = axis.scale != Scale.LINEAR
    options: dict[str, Any] = {"title": {"text": axis.label}, "type": "log" if is_log else "linear"}
    if axis.ticks is not None:
        options |= {"tickvals": list(axis.ticks), "ticktext": list(axis.ticks.values())}
    if axis.range is not None:
        options["range"] = [log10(end) for end in axis.range] if is_log else list(axis.range)
    return options
