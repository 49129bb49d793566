"""report.html: one file that needs nothing else, not even a network."""

from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from hybridsim.report.figure import Figure
from hybridsim.report.interactive import to_plotly
from hybridsim.report.tables import Results
from hybridsim.report.units import quantity

# Columns of the table in the page; summary.csv has them all.
_SHOWN = (
    "token_hit_rate", "token_match_rate", "request_hit_rate", "ceiling_token_hit_rate",
    "bound_token_hit_rate", "regret",
    "num_requests", "num_refused", "num_evicted_tokens", "num_evicted_states", "num_checkpoints",
    "peak_kv_bytes", "peak_state_bytes", "ttft_s_p50", "ttft_s_p99", "tpot_s_p50", "e2e_s_p50",
    "queue_s_p99", "throughput_output_tokens_per_s", "num_preemptions",
)  # fmt: skip


def write_page(path: Path, results: Results, figures: list[Figure]) -> None:
    """Write the page; figures are drawn in the browser from data inside it."""
    environment = Environment(
        loader=PackageLoader("hybridsim.report", "."), autoescape=True, trim_blocks=True
    )
    metas = list(results.metas.values())
    text = environment.get_template("page.html.j2").render(
        name=results.experiment.name,
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704
        figures=[(figure, Markup(to_plotly(figure))) for figure in figures],  # noqa: S704
        headings=_headings(results),
        rows=_rows(results),
        is_timed=results.is_timed,
        traces=_unique(meta["trace"] for meta in metas),
        assumptions=_unique(note for meta in metas for note in meta["assumptions"]),
        refused=_unique(note for meta in metas for note in meta["refused"]),
        outcomes=_unique(note for meta in metas for note in meta.get("outcome", ())),
        laws=_unique(law for meta in metas for law in meta["laws_checked"]),
        config=yaml.safe_dump(results.experiment.source.data, sort_keys=False),
        versions=_unique(meta["versions"] for meta in metas),
        dates=sorted({meta["date"] for meta in metas}),
        wall_s=sum(meta["wall_s"] for meta in metas),
        warmups=sorted({meta["num_warmup_requests"] for meta in metas}),
    )
    path.write_text(text, encoding="utf-8")


def _unique(items: Any) -> list[Any]:
    found: list[Any] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _columns(results: Results) -> list[str]:
    return [column for column in _SHOWN if column in results.summary]


def _headings(results: Results) -> list[str]:
    return [*results.experiment.axes, *(quantity(c).axis_label for c in _columns(results))]


def _rows(results: Results) -> list[list[str]]:
    columns = _columns(results)
    return [
        [str(row[key]) for key in results.experiment.axes]
        + [_number(row[column], quantity(column).factor) for column in columns]
        for _, row in results.summary.iterrows()
    ]


def _number(value: Any, factor: float) -> str:
    if pd.isna(value):
        return "refused"
    scaled = float(value) * factor
    if scaled.is_integer() and factor == 1.0:
        return f"{int(scaled):,}"
    return f"{scaled:.2f}" if factor == 100.0 else f"{scaled:.4g}"
