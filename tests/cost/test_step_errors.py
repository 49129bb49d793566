"""How sure a measured cost model is of a step."""

from dataclasses import replace

import pytest

from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.measured import Fit, MeasuredCost, parse_profile
from tests.cost.test_measured import profile_data


def cost_with(fit):
    """Every time of the profile has a spread of 2 %: quantiles of 1 % on both sides."""
    return MeasuredCost(replace(parse_profile(profile_data(), "p"), fit=fit))


def test_the_error_of_a_decode_step_is_that_of_its_independent_parts():
    """10 requests at 500 tokens: 1.01 ms, 0.101 ms, 0.1 ms and 5 us, each with 2 %."""
    parts = (1.01e-3, 1.01e-4, 1e-4, 5e-6)
    expected = 0.02 * sum(part**2 for part in parts) ** 0.5
    assert cost_with(Fit()).error_s((), 10, 5000) == pytest.approx(expected)


def test_the_fit_s_own_error_is_of_the_whole_step():
    """With 3 % of the fit's beside 2 % of the only part there is, a copy of 8 states (80 us)."""
    error_s = cost_with(Fit(error=0.03)).error_s((), 0, 0, copied_bytes=8000)
    assert error_s == pytest.approx(80e-6 * (0.02**2 + 0.03**2) ** 0.5)


def test_a_step_with_nothing_to_do_has_no_error():
    assert cost_with(Fit(error=0.03)).error_s((), 0, 0) == 0.0


def test_more_parts_never_make_a_step_surer():
    cost = cost_with(Fit(error=0.01))
    alone = cost.error_s((), 10, 5000)
    assert cost.error_s([PrefillChunk(64, 0)], 10, 5000, copied_bytes=1000) > alone
