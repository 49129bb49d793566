"""Axes in plain numbers."""

import pytest
from matplotlib.figure import Figure

from hybridsim.ticks import memory_sizes, plain_log


def labels_of(low: float, high: float, setup, base: int) -> list[str]:
    """What stands below a log axis from `low` to `high`."""
    figure = Figure()
    axes = figure.subplots()
    axes.set_xscale("log", base=base)
    axes.set_xlim(low, high)
    setup(axes.xaxis)
    figure.draw_without_rendering()
    texts = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
    places = [*axes.get_xticks(), *axes.get_xticks(minor=True)]
    shown = [t.get_text() for t, x in zip(texts, places, strict=True) if low <= x <= high]
    return [text for text in shown if text]


@pytest.mark.parametrize(
    ("low", "high", "some"),
    [
        (12, 70, {"20", "30", "40"}),  # less than a decade: some of what lies between
        (0.05, 20000, {"0.1", "1", "10", "100", "1,000", "10,000"}),
    ],
)
def test_log_axes_have_no_powers(low, high, some):
    labels = labels_of(low, high, plain_log, 10)
    assert some <= set(labels)
    assert all(text.replace(",", "").replace(".", "").isdigit() for text in labels)


def test_memory_axes_name_their_unit():
    found = labels_of(0.25, 4, memory_sizes, 2)
    assert found == ["256 MiB", "512 MiB", "1 GiB", "2 GiB", "4 GiB"]
