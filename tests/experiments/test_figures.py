"""Figures that stay readable: one panel a line where there are many, no lines between names."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.helpers import tiny, write_experiment
from hybridsim.config import PlotConfig
from hybridsim.report.curves import curve
from hybridsim.report.figure import Axis, Figure, Level, Panel, Series, Style
from hybridsim.report.multiples import is_crowded, small_multiples
from hybridsim.report.png import draw_png
from hybridsim.report.tables import read_results
from hybridsim.sweep import command

NUM_COLORS = 8  # of Okabe and Ito's palette as the figures use it


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    """Up to 3 panels with up to 14 lines, some of them with a fainter one behind."""
    num_lines = draw(st.integers(1, 14))
    style = draw(st.sampled_from([Style.LINE, Style.STEP]))
    panels = []
    for index in range(draw(st.integers(1, 3))):
        series = []
        for color in range(num_lines):
            x = sorted(draw(st.sets(st.integers(0, 9), min_size=1, max_size=4)))
            points = ([float(at) for at in x], [float(at * color) for at in x])
            series.append(Series(f"line {color}", *points, color, style))
            if draw(st.booleans()):
                series.append(Series("match", *points, color, Style.FAINT))
        levels = [Level("ceiling", 9.0)]
        panels.append(Panel(f"part {index}", Axis("x"), Axis("y"), series, levels))
    return Figure("some", "Some", panels, "key")


@given(figure=figures())
def test_small_multiples_show_every_line_once_and_the_others_behind_it(figure):
    labels = list(dict.fromkeys(one.label for one in figure.panels[0].series))
    lines = [label for label in labels if label != "match"]
    assert is_crowded(figure) == (len(lines) > NUM_COLORS)
    spread = small_multiples(figure)
    assert len(spread.panels) == len(lines) * len(figure.panels)
    for number, panel in enumerate(spread.panels):
        label, source = (
            lines[number // len(figure.panels)],
            figure.panels[number % len(figure.panels)],
        )
        assert (panel.x, panel.y, panel.levels) == (source.x, source.y, source.levels)
        own = [one for one in panel.series if one.style != Style.CONTEXT]
        color = next(one.color for one in source.series if one.label == label)
        expected = [(one.label, one.x, one.y) for one in source.series if one.color == color]
        assert [(one.label, one.x, one.y) for one in own] == expected
        assert {one.color for one in own} == {0}
        behind = [(one.x, one.y) for one in panel.series if one.style == Style.CONTEXT]
        others = (one for one in source.series if one.color != color and one.label != "match")
        assert behind == [(one.x, one.y) for one in others]
        assert label in panel.title


@given(figure=figures())
def test_small_multiples_are_not_crowded(figure):
    assert not is_crowded(small_multiples(figure))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    """Nine lines over three places, and names as well as numbers to draw over."""
    folder = tmp_path_factory.mktemp("figures")
    every = [{"name": "every", "tokens": 16 * count} for count in range(1, 8)]
    sweep = {
        "cache.state_slots": [1, 2, 4],
        "cache.checkpoint": ["none", "prompt_end", *every],
    }
    y = ["token_match_rate", "token_hit_rate"]
    plots = [
        {"x": "cache.state_slots", "y": y, "line": "cache.checkpoint"},
        {"x": "cache.checkpoint", "y": y, "line": "cache.state_slots"},
    ]
    path = write_experiment(folder, tiny(folder, sweep=sweep, plots=plots))
    assert command.run(path, (), out_dir=folder / "out") == 0
    return read_results(folder / "out")


def styles(figure: Figure) -> set[Style]:
    return {one.style for panel in figure.panels for one in panel.series}


def test_names_are_not_joined_by_lines_and_numbers_are(results):
    y = ("token_match_rate", "token_hit_rate")
    over_names = curve(results, PlotConfig(x="cache.checkpoint", y=y, line="cache.state_slots"))
    assert styles(over_names) == {Style.POINT, Style.FAINT_POINT}
    assert "Hollow" in over_names.note
    over_numbers = curve(results, PlotConfig(x="cache.state_slots", y=y, line="cache.checkpoint"))
    assert styles(over_numbers) == {Style.LINE, Style.FAINT}
    assert "Dotted" in over_numbers.note
    assert is_crowded(over_numbers)
    assert not is_crowded(over_names)


def test_both_are_drawn_and_the_page_has_the_lines_together(results):
    names = {path.name for path in (results.folder / "plots").glob("*.png")}
    stem = "token_match_rate-token_hit_rate-over-cache"
    assert names == {
        f"{stem}.state_slots-by-cache.checkpoint.png",
        f"{stem}.checkpoint-by-cache.state_slots.png",
    }
    assert "every(tokens=112)" in (results.folder / "report.html").read_text()


def test_a_picture_depends_on_its_figure_alone(results, tmp_path: Path):
    plot = PlotConfig(x="cache.state_slots", y=("token_hit_rate",), line="cache.checkpoint")
    for name in ("a.png", "b.png"):
        draw_png(small_multiples(curve(results, plot)), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.filterwarnings("error")
def test_a_value_that_is_a_whole_mapping_leaves_the_panels_their_room(tmp_path: Path) -> None:
    """A label of 800 letters would push everything else from the page."""
    long = "inline(" + ", ".join(f"key{i}=value{i}" for i in range(60)) + ")"
    series = [Series(f"{name}{long}", [0.0, 1.0], [1.0, 2.0], i) for i, name in enumerate("ab")]
    axis = Axis("x", ticks={0.0: long, 1.0: f"other {long}"})
    panel = Panel(long, axis, Axis("y"), series)
    draw_png(Figure("long", "t", [panel, panel], "line", "subtitle", "note"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
