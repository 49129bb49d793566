"""Least squares within bounds, and floors of several classes fitted to times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.cost.least_squares import bounded_least_squares, fit_floors

# No numbers near 0 but 0 itself: a column of those is a hole to least squares.
tenths = st.integers(-30, 30).map(lambda n: n / 10)


@given(
    st.integers(1, 3).flatmap(
        lambda n: st.tuples(
            st.lists(st.lists(tenths, min_size=n, max_size=n), min_size=4, max_size=7),
            st.lists(st.floats(0, 2), min_size=n, max_size=n),
        )
    ),
    st.data(),
)
def test_bounded_least_squares_beats_every_other_allowed_point(problem, data):
    """No step from the answer into the allowed region makes the sum of squares smaller."""
    rows, least = np.array(problem[0]), problem[1]
    numbers = st.lists(tenths, min_size=len(rows), max_size=len(rows))
    target = np.array(data.draw(numbers))
    x = bounded_least_squares(rows, target, least)
    assert (x >= np.array(least) - 1e-9).all()
    rest = np.sum((rows @ x - target) ** 2)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 0.1, 1.0):
        for _ in range(20):
            other = np.maximum(x + scale * rng.normal(size=len(x)), least)
            assert np.sum((rows @ other - target) ** 2) >= rest - 1e-6 * (1 + rest)


def test_a_floor_without_a_point_keeps_its_bound():
    """Times of 2 x bytes + 1 s say nothing of FLOPs: the lower bound 1.5 is all that is known."""
    floors = np.array([[[0.0, n]] for n in (1.0, 2.0, 3.0)])
    found = fit_floors(floors, np.ones(3), 2 * floors[:, 0, 1] + 1, (1.5, 1.1))
    assert (found.compute, found.num_compute) == ((1.5,), (0,))
    assert (*found.memory, found.fixed_s, found.error) == pytest.approx((2.0, 1.0, 0.0), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_two_classes_that_run_one_after_the_other_are_told_apart(seed):
    """max(2 a, 3 b) + max(4 c, 1.5 d) + 0.1 over random work, with and without one known."""
    rng = np.random.default_rng(seed)
    floors = 10 ** rng.uniform(-2, 2, (80, 2, 2))
    compute, memory = np.array([2.0, 4.0]), np.array([3.0, 1.5])
    seconds = np.maximum(floors[..., 0] * compute, floors[..., 1] * memory).sum(axis=1) + 0.1
    for known in ({}, {1: 1.5}):
        found = fit_floors(floors, np.ones(80), seconds, (1.0, 1.0), known)
        assert found.compute == pytest.approx(compute)
        assert found.memory == pytest.approx(memory)
        assert found.fixed_s == pytest.approx(0.1)
        assert found.error < 1e-9
        first = floors[..., 0] * compute > floors[..., 1] * memory
        assert found.num_compute == tuple(first.sum(axis=0))
