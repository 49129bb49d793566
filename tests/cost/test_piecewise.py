"""Closed sums against summing."""

from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.cost.piecewise import Line, sum_of_larger

numbers = st.floats(-100, 100, allow_subnormal=False)
lines = st.builds(Line, numbers, numbers)


@given(lines, lines, st.integers(0, 300))
def test_the_sum_of_the_larger_line(one, other, num_steps):
    terms = [max(one.at(i), other.at(i)) for i in range(num_steps)]
    size = fsum(map(abs, terms)) + 1
    assert sum_of_larger(one, other, num_steps) == pytest.approx(fsum(terms), abs=1e-11 * size)


def test_a_crossing_by_hand():
    # max(10, 3 i) for i in 0..5: 10 10 10 10 12 15
    assert sum_of_larger(Line(10, 0), Line(0, 3), 6) == 67


@given(lines, st.integers(0, 50), st.integers(0, 50))
def test_a_lines_sum_over_a_range(line, first, length):
    terms = [line.at(i) for i in range(first, first + length)]
    assert line.sum(first, first + length) == pytest.approx(fsum(terms), abs=1e-9)
