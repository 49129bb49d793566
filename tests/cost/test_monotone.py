"""Times made to rise: nearest, idempotent, never falling; side by side never cheaper."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hybridsim.cost.monotone import rising, rising_increments, rising_times
from hybridsim.cost.side_by_side import scans_s
from hybridsim.cost.tables import Table

SECONDS = st.floats(1e-6, 1.0)
GRIDS = st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=SECONDS)
)


def does_not_fall(values, axis):
    return (np.diff(values, axis=axis) >= 0).all()


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5))
def test_rising_is_the_nearest_sequence_that_does_not_fall(values):
    """Brute force: the best is a mean over each block of some cut into consecutive blocks."""
    found = rising(np.array(values, dtype=float))
    assert does_not_fall(found, 0)
    best = float("inf")
    for cuts in itertools.product((0, 1), repeat=len(values) - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(values)]
        blocks = [values[a:b] for a, b in itertools.pairwise(edges)]
        means = [np.mean(block) for block in blocks]
        if sorted(means) == means:
            best = min(best, sum(((np.array(b) - m) ** 2).sum() for b, m in zip(blocks, means)))  # noqa: B905
    assert ((found - values) ** 2).sum() == pytest.approx(best, abs=1e-9)


@given(GRIDS)
def test_times_rise_along_both_axes_and_stay_where_they_did(seconds):
    found = rising_times(seconds)
    assert does_not_fall(found, 0)
    assert does_not_fall(found, 1)
    assert found.min() >= seconds.min() * (1 - 1e-9)
    assert found.max() <= seconds.max() * (1 + 1e-9)
    in_order = np.sort(np.sort(seconds, axis=0), axis=1)
    assert np.array_equal(rising_times(in_order), in_order)


@given(GRIDS)
def test_increments_rise_with_the_number_of_sequences(seconds):
    found = rising_increments(seconds)
    steps = np.diff(found, axis=0)
    # Increments are differences of larger sums: equal ones may differ in their last digits.
    assert (steps >= -1e-12).all()
    assert (np.diff(steps, axis=1) >= -1e-12).all()


@given(
    GRIDS.filter(lambda grid: min(grid.shape) > 1),
    st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(1, 200), st.integers(0, 4),
)  # fmt: skip
def test_neither_a_longer_chunk_nor_one_more_is_cheaper(seconds, lengths, extra, which):
    knots = [16.0 * 2**i for i in range(seconds.shape[0])]
    counts = [float(i + 1) for i in range(seconds.shape[1])]
    values = tuple(map(tuple, rising_increments(seconds).tolist()))
    table = Table("scan", tuple(knots), tuple(counts), values, 0.0)
    before = scans_s(table, lengths)
    assert scans_s(table, [*lengths, extra]) >= before * (1 - 1e-9)
    longer = list(lengths)
    longer[which % len(lengths)] += extra
    assert scans_s(table, longer) >= before * (1 - 1e-9)
