"""Figures show what the tables say; the report needs nothing but itself."""

import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from experiments.helpers import read_summary, tiny, write_experiment
from hybridsim.config import PlotConfig
from hybridsim.config.reference import PART
from hybridsim.errors import UserError
from hybridsim.report.bands import brackets
from hybridsim.report.curves import curve
from hybridsim.report.distributions import STEP_COLUMNS, _time_series, cdf, steps
from hybridsim.report.draw import KINDS, default_plots, draw_report
from hybridsim.report.figure import Scale, Style
from hybridsim.report.tables import read_results
from hybridsim.report.units import in_unit_for, quantity, x_axis
from hybridsim.sweep import command


@pytest.fixture(scope="module")
def replayed(tmp_path_factory) -> Path:
    """A sweep over memory and policies, without a clock."""
    folder = tmp_path_factory.mktemp("replayed")
    sweep = {
        "cache.memory": ["64MiB", "256MiB", "unlimited"],
        "cache.checkpoint": ["none", "prompt_end", "branch"],
        "cache.page_size": [16, 32],
    }
    path = write_experiment(
        folder, tiny(folder, cache={"state_fraction": 0.5}, sweep=sweep, plots=None)
    )
    assert command.run(path, [], out_dir=folder / "out", console=Console(quiet=True)) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def timed(tmp_path_factory) -> Path:
    """The same requests against a clock, with the default figures."""
    folder = tmp_path_factory.mktemp("timed")
    path = write_experiment(folder, tiny(folder, mode="timed", gpu="h200", plots=None))
    assert command.run(path, [], out_dir=folder / "out", console=Console(quiet=True)) == 0
    return folder / "out"


def test_a_curve_holds_the_numbers_of_the_summary(replayed: Path) -> None:
    plot = PlotConfig(x="cache.memory", y="token_hit_rate", line="cache.checkpoint")
    figure = curve(read_results(replayed), plot)
    shown = {
        (panel.title, series.label, x): y
        for panel in figure.panels
        for series in panel.series
        for x, y in zip(series.x, series.y, strict=True)
    }
    # 64 MiB and 256 MiB are 1/16 and 1/4 GiB; unlimited lies apart, to the right of them
    places = {"64MiB": 1 / 16, "256MiB": 1 / 4}
    apart = max(x for _, _, x in shown)
    assert apart > 1 / 4
    rows = read_summary(replayed)
    assert len(shown) == len(rows) == 18
    for row in rows:
        x = places.get(row["cache.memory"], apart)
        key = (f"page size {row['cache.page_size']}", row["cache.checkpoint"], x)
        assert shown[key] == pytest.approx(100 * float(row["token_hit_rate"]))
    assert figure.panels[0].x.scale == Scale.LOG2
    assert figure.panels[0].y.label == "Token hit rate (%)"
    ceilings = {round(100 * float(row["ceiling_token_hit_rate"]), 4) for row in rows}
    assert {level.y for level in figure.panels[0].levels} == ceilings


def _bracket_of(row):
    names = ("feasible_token_hit_rate", "bound_token_hit_rate")
    return tuple(100 * float(row[name]) for name in names)


def test_a_hit_rate_over_memory_has_the_bracket_behind_it(replayed: Path) -> None:
    plot = PlotConfig(x="cache.memory", y="token_hit_rate", line="cache.checkpoint")
    figure = curve(read_results(replayed), plot)
    rows = read_summary(replayed)
    for panel in figure.panels:
        (band,) = panel.bands
        assert band.x == [1 / 16, 1 / 4]  # unlimited memory reaches the ceiling
        for place, (low, high) in enumerate(zip(band.low, band.high, strict=True)):
            size = ["64MiB", "256MiB"][place]
            brackets = [
                _bracket_of(row) for row in rows
                if row["cache.memory"] == size and panel.title.endswith(row["cache.page_size"])
            ]  # fmt: skip
            assert (low, high) == pytest.approx(tuple(map(max, zip(*brackets, strict=True))))


@pytest.mark.parametrize("kind", ["curve", "losses"])
def test_timed_runs_have_a_bracket_at_each_name(timed: Path, kind: str) -> None:
    results = read_results(timed)
    y = {"y": "token_hit_rate"} if kind == "curve" else {}
    figure = KINDS[kind](results, PlotConfig(kind=kind, x="cache.checkpoint", **y))
    assert "other batches" in figure.note
    for panel in figure.panels:
        slots = panel.title.split()[-1]
        names = {place: name for place, name in panel.x.ticks.items()}
        assert len(panel.bands) == len(names) == 3
        for band in panel.bands:
            middle = sum(band.x) / 2
            (row,) = (
                row for row in read_summary(timed)
                if row["cache.state_slots"] == slots
                and row["cache.checkpoint"] == names[round(middle)]
            )  # fmt: skip
            low, high = _bracket_of(row)
            assert band.high == pytest.approx([high, high])
            # Over bars only the upper edge is drawn.
            assert band.low == pytest.approx([low if kind == "curve" else high] * 2)


def test_memories_that_are_no_size_stand_beside_the_scale() -> None:
    axis = x_axis("cache.memory", ["8GiB", "null", "unlimited", "32GiB"])
    places = axis.positions
    assert places["8GiB"] < places["32GiB"] < min(places["unlimited"], places["null"])
    assert places["unlimited"] != places["null"]
    assert axis.apart == {"unlimited", "null"}


def test_a_single_memory_has_a_short_bracket() -> None:
    rows = pd.DataFrame(
        {"cache.memory": ["4GiB"], "feasible_token_hit_rate": [0.2], "bound_token_hit_rate": [0.3]}
    )
    (band,) = brackets(rows, "cache.memory", x_axis("cache.memory", ["4GiB"]))
    assert band.x[0] < 4 < band.x[1]
    assert (band.low, band.high) == ([20.0, 20.0], [30.0, 30.0])


def test_the_same_policy_has_the_same_colour_in_every_panel(replayed: Path) -> None:
    plot = PlotConfig(x="cache.memory", y="token_hit_rate", line="cache.checkpoint")
    figure = curve(read_results(replayed), plot)
    pairs = {(series.label, series.color) for panel in figure.panels for series in panel.series}
    assert len(pairs) == len({label for label, _ in pairs}) == len({color for _, color in pairs})


def test_of_two_metrics_the_first_stands_behind(replayed: Path) -> None:
    metrics = ("token_match_rate", "token_hit_rate")
    figure = curve(
        read_results(replayed), PlotConfig(x="cache.memory", y=metrics, line="cache.checkpoint")
    )
    labels = {series.label for series in figure.panels[0].series if series.style == Style.FAINT}
    assert labels == {"Token match rate"}


def test_a_metric_that_is_none_is_named(replayed: Path) -> None:
    with pytest.raises(UserError, match="'hit_rate' is no metric.*token_hit_rate"):
        curve(read_results(replayed), PlotConfig(x="cache.memory", y="hit_rate"))


def test_a_cdf_is_the_share_of_requests(timed: Path) -> None:
    results = read_results(timed)
    figure = cdf(results, PlotConfig(kind="cdf", y="ttft_s", line="cache.checkpoint"))
    run = results.summary.query("`cache.checkpoint` == 'branch' and `cache.state_slots` == '4'")
    times_ms = 1e3 * results.requests(run["run"].item())["ttft_s"].to_numpy()
    panel = next(panel for panel in figure.panels if panel.title == "cache.state_slots 4")
    series = next(series for series in panel.series if series.label == "branch")
    assert series.x == pytest.approx(sorted(times_ms))
    assert series.y == pytest.approx([25.0, 50.0, 75.0, 100.0])
    assert panel.x.label == "Time to first token (ms), log scale"


def test_all_columns_of_the_steps_can_be_drawn(timed: Path) -> None:
    figure = steps(read_results(timed), PlotConfig(kind="steps", line="cache.checkpoint"))
    # two numbers of slots side by side, one row of panels a column
    assert len(figure.panels) == 2 * len(STEP_COLUMNS)
    assert figure.num_columns == 2


step_rows = st.lists(
    st.tuples(st.floats(0.0, 5.0), st.floats(0.001, 3.0), st.integers(0, 1000)),
    min_size=1,
    max_size=40,
)


@given(step_rows)
def test_time_series_keep_the_sum(rows: list[tuple[float, float, int]]) -> None:
    """Token-seconds and tokens in the drawn bins are those of the steps, idle gaps included."""
    starts_s, now_s = [], 0.0
    for gap_s, duration_s, _ in rows:
        starts_s.append(now_s + gap_s)
        now_s = starts_s[-1] + duration_s
    durations_s = np.array([row[1] for row in rows])
    values = np.array([row[2] for row in rows])
    table = pd.DataFrame(
        {
            "start_s": starts_s,
            "duration_s": durations_s,
            "num_running": values,
            "num_prefill_tokens": values,
        }
    )
    bin_s = (now_s - starts_s[0]) / 200
    running = _time_series("", table, "num_running", 0)
    assert sum(running.y) * bin_s == pytest.approx(float((values * durations_s).sum()), abs=1e-6)
    tokens = _time_series("", table, "num_prefill_tokens", 0)
    assert sum(tokens.y) * bin_s == pytest.approx(float(values.sum()), abs=1e-6)


def test_every_figure_is_a_picture_with_something_on_it(replayed: Path, timed: Path) -> None:
    pictures = sorted(replayed.glob("plots/*.png")) + sorted(timed.glob("plots/*.png"))
    assert len(pictures) == 3 + 5
    for path in pictures:
        pixels = matplotlib.image.imread(path)
        assert min(pixels.shape[:2]) > 500
        colors = (255 * pixels[..., :3]).astype(np.int64) @ np.array([2**16, 2**8, 1])
        assert len(np.unique(colors)) > 50


def test_the_report_is_one_file_that_asks_for_no_other(timed: Path) -> None:
    page = (timed / "report.html").read_text()
    outside_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)\s*=|@import|url\(""", outside_scripts)
    assert "<script src" not in page
    for text in ("Token hit rate", "prompt_end", "infinite cache", "hit &lt;= match", "tiny.jsonl"):
        assert text in page
    for row in read_summary(timed):
        assert f"<td>{100 * float(row['token_hit_rate']):.2f}</td>" in page


def test_a_report_can_be_drawn_again_and_is_the_same(replayed: Path) -> None:
    before = {path: path.read_bytes() for path in replayed.rglob("*.png")}
    before[replayed / "report.html"] = (replayed / "report.html").read_bytes()
    draw_report(replayed)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("sweep", [{}, {"cache.checkpoint": ["none", "prompt_end"]}])
def test_runs_without_a_clock_stand_beside_timed_ones(tmp_path: Path, sweep) -> None:
    """Times are drawn of the runs that have some; all default figures come out."""
    sweep = {"mode": ["replay", "timed"], **sweep}
    path = write_experiment(tmp_path, tiny(tmp_path, gpu="h200", sweep=sweep, plots=None))
    assert command.run(path, [], out_dir=tmp_path / "out", console=Console(quiet=True)) == 0
    results = read_results(tmp_path / "out")
    assert len(results.summary) == 2 * len(results.timed.summary)
    assert set(results.timed.summary["mode"]) == {"timed"}
    plotted = {plot.kind: KINDS[plot.kind](results, plot) for plot in default_plots(results, None)}
    assert set(plotted) == {"curve", "losses", "cdf", "steps"}
    lines = [line for panel in plotted["cdf"].panels for line in panel.series]
    assert len(lines) == len(results.timed.summary)
    assert all(max(line.y) == 100 for line in lines)


def test_a_missing_run_is_named(timed: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(timed, copy)
    run = read_summary(copy)[0]["run"]
    (copy / "runs" / run / "meta.json").unlink()
    with pytest.raises(UserError, match=rf"{run}/meta.json: is missing"):
        draw_report(copy)


def test_the_default_figures_fit_the_sweep(replayed: Path, timed: Path) -> None:
    kinds = [plot.kind for plot in default_plots(read_results(replayed), None)]
    assert kinds == ["curve", "curve", "losses"]
    kinds = [plot.kind for plot in default_plots(read_results(timed), None)]
    assert kinds == ["curve", "curve", "losses", "cdf", "steps"]
    assert default_plots(read_results(timed), ()) == []


@pytest.mark.parametrize(
    ("column", "label"),
    [
        ("token_hit_rate", "Token hit rate (%)"),
        ("ttft_s_p99", "Time to first token, p99 (s)"),
        ("peak_kv_bytes", "Peak KV memory (GiB)"),
        ("throughput_output_tokens_per_s", "Throughput output tokens (1/s)"),
        ("num_preemptions", "Preemptions"),
        ("num_steps", "Num steps"),
    ],
)
def test_an_axis_says_its_unit(column: str, label: str) -> None:
    assert quantity(column).axis_label == label


def test_short_times_are_shown_in_milliseconds() -> None:
    assert in_unit_for("ttft_s_p50", 0.2).axis_label.endswith("p50 (ms)")
    assert in_unit_for("ttft_s_p50", 0.2).factor == 1e3
    assert in_unit_for("ttft_s_p50", 0.7).axis_label.endswith("p50 (s)")


def test_axes_suit_their_values() -> None:
    tokens = x_axis("cache.kv_tokens", ["1024", "4096", "65536"])
    assert tokens.axis.scale == Scale.LOG2
    assert tokens.positions == {"1024": 1024.0, "4096": 4096.0, "65536": 65536.0}
    names = x_axis("cache.eviction", ["lru", "lfu"])
    assert names.positions == {"lru": 0.0, "lfu": 1.0}
    fractions = x_axis("cache.state_fraction", ["0.1", "0.2", "0.3"])
    assert fractions.axis.scale == Scale.LINEAR


def test_the_documented_keys_are_those_of_the_schema(repo_dir: Path) -> None:
    page = (repo_dir / "docs" / "experiments.md").read_text()
    assert PART.renewed(page) == page, "python -m hybridsim.config.reference docs/experiments.md"
