"""The figure of whole steps shows what it was given, in the units that it names."""

import numpy as np
import pytest

from hybridsim.cost.step_figure import MODEL_COLORS, StepColumn, figure_of


def points_of(axes, name):
    """x and y of the points of one model, told by its colour."""
    (line,) = (line for line in axes.lines if line.get_color() == MODEL_COLORS[name])
    return line.get_xdata(), line.get_ydata()


def test_points_lie_at_milliseconds_above_and_at_percent_below():
    """2 and 40 ms; the model says 1 % more and 5 % less, the roofline half and a quarter."""
    measured = np.array([0.002, 0.040])
    predicted = {
        "measured model": np.array([0.00202, 0.038]),
        "roofline": np.array([0.001, 0.010]),
    }
    figure = figure_of([StepColumn("one", measured, predicted)])
    above, below = figure.axes
    for name, there_ms, error in (
        ("measured model", [2.02, 38], [1, -5]),
        ("roofline", [1, 10], [-50, -75]),
    ):
        x, y = points_of(above, name)
        assert x == pytest.approx([2, 40])
        assert y == pytest.approx(there_ms)
        x, y = points_of(below, name)
        assert x == pytest.approx([2, 40])
        assert y == pytest.approx(error)
    assert [text.get_text() for text in above.get_legend().get_texts()] == list(predicted)[::-1]
    assert (above.get_title(), below.get_ylabel()) == ("one", "error (%)")


def test_columns_share_one_range_so_that_they_can_be_compared():
    """Steps of 1 ms in one column and of 1 s in the other; the diagonal spans both."""
    columns = [
        StepColumn(str(seconds), np.array([seconds]), {"measured model": np.array([seconds])})
        for seconds in (0.001, 1.0)
    ]
    above = figure_of(columns).axes[:2]
    for axes in above:
        diagonal = axes.lines[0]
        assert diagonal.get_xdata() == pytest.approx([0.9, 1100])
        assert list(diagonal.get_ydata()) == list(diagonal.get_xdata())
    assert above[0].get_ylim() == above[1].get_ylim()
