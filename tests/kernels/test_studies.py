"""The arithmetic of the studies that needs no GPU."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hybridsim.kernels.chunk_study import check_agreement, chunk_size  # noqa: E402
from hybridsim.kernels.reuse_studies import GAPS, slope  # noqa: E402


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_the_slope_of_a_line_is_its_own(start, rise):
    assert slope(GAPS, [start + rise * gap for gap in GAPS]) == pytest.approx(rise, abs=1e-6)


def test_the_slope_is_the_least_squares_one():
    """(0, 0), (1, 0), (2, 3): mean x 1, covariance (-1)(-1) + 0 + (1)(2) = 3, spread 2."""
    assert slope([0, 1, 2], [0, 0, 3]) == pytest.approx(1.5)


def test_forms_are_timed_only_when_they_agree():
    """1 % of the norm off is allowed, 3 % is not; nor is anything that is not a number."""
    expected = torch.arange(1.0, 9.0)
    check_agreement("output", 1.01 * expected, expected)
    for wrong in (1.03 * expected, torch.full_like(expected, float("nan"))):
        with pytest.raises(RuntimeError, match="output differs by .*; allowed: less than 2e-02"):
            check_agreement("output", wrong, expected)


@pytest.mark.gpu
def test_chunk_sizes_are_compared_and_timed_in_both_forms():
    rows = chunk_size(num_tokens=1000)
    assert [(row["form"], row["chunk_size"]) for row in rows] == [
        *(("one program a chunk", size) for size in (16, 32, 64, 128)),
        *(("blocks of 64", size) for size in (64, 128, 256)),
    ]
    assert all(row["seconds"] > 0 for row in rows)
