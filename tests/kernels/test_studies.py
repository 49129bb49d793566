"""The arithmetic of the studies that needs no GPU."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hybridsim.kernels.reuse_studies import GAPS, slope  # noqa: E402


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_the_slope_of_a_line_is_its_own(start, rise):
    assert slope(GAPS, [start + rise * gap for gap in GAPS]) == pytest.approx(rise, abs=1e-6)


def test_the_slope_is_the_least_squares_one():
    """(0, 0), (1, 0), (2, 3): mean x 1, covariance (-1)(-1) + 0 + (1)(2) = 3, spread 2."""
    assert slope([0, 1, 2], [0, 0, 3]) == pytest.approx(1.5)
