"""Arrivals, and the clock's small print."""

from math import nan

import pytest

from hybridsim.cache.null_cache import NullCache
from hybridsim.errors import UserError
from hybridsim.records import MissReason
from hybridsim.request import Request
from hybridsim.sim.engine import simulate
from hybridsim.sim.options import SchedulerOptions
from tests.sim.workloads import AffineCost, request

# A step takes 1 s whatever it does, so that a request of p prompt tokens and m output tokens,
# alone and with room for its whole prompt, takes m s (or 1 s for m = 0).
ONE_SECOND = AffineCost(1.0, 0.0, 0.0, 0.0)
SERIES = SchedulerOptions(max_num_seqs=1, max_num_batched_tokens=100)


def times(requests: list[Request], **options: object) -> list[tuple[float | None, float | None]]:
    """(arrival, end) of every request."""
    result = simulate(requests, NullCache(4), ONE_SECOND, SERIES, **options)  # type: ignore[arg-type]
    return [(record.arrival_s, record.finished_s) for record in result.records]


def test_recorded_arrivals_queue_when_the_server_is_busy() -> None:
    requests = [request(0, 8, 3, 1.0), request(1, 8, 2, 2.5), request(2, 8, 1, 20.0)]
    assert times(requests) == [(1.0, 4.0), (2.5, 6.0), (20.0, 21.0)]


def test_requests_need_not_be_sorted_by_arrival() -> None:
    assert times([request(0, 8, 1, 5.0), request(1, 8, 1, 2.0)]) == [(5.0, 6.0), (2.0, 3.0)]


def test_serial_sends_the_next_request_when_one_ends() -> None:
    requests = [request(0, 8, 3, None), request(1, 8, 2, None), request(2, 8, 0, None)]
    assert times(requests, arrivals="serial") == [(0.0, 3.0), (3.0, 5.0), (5.0, 6.0)]


def test_closed_loop_sends_a_turn_after_the_one_before_it_has_ended() -> None:
    requests = [
        request(0, 8, 3, 1.0),
        request(1, 8, 2, 2.0, previous=0, delay_s=7.0),  # its recorded arrival is not used
        request(2, 8, 1, None, previous=1),
        request(3, 8, 1, 30.0),
    ]
    expected = [(1.0, 4.0), (11.0, 13.0), (13.0, 14.0), (30.0, 31.0)]
    assert times(requests, arrivals="closed_loop") == expected


def test_a_turn_follows_a_refused_one_too() -> None:
    requests = [request(0, 50, 1, 2.0), request(1, 8, 1, None, previous=0, delay_s=0.0)]
    result = simulate(
        requests, NullCache(4, num_pages=4), ONE_SECOND, SERIES, arrivals="closed_loop"
    )
    assert result.records[0].miss_reason == MissReason.REFUSED
    assert (result.records[1].arrival_s, result.records[1].finished_s) == (2.0, 3.0)


def test_all_requests_may_be_refused() -> None:
    requests = [request(i, 50, 1, 0.0) for i in range(3)]
    result = simulate(requests, NullCache(4, num_pages=4), ONE_SECOND, SERIES, arrivals="serial")
    assert [record.miss_reason for record in result.records] == [MissReason.REFUSED] * 3
    assert result.steps == []


def test_rate_scale_shrinks_arrivals_and_delays() -> None:
    requests = [request(0, 8, 1, 4.0), request(1, 8, 1, None, previous=0, delay_s=2.0)]
    expected = [(2.0, 3.0), (4.0, 5.0)]
    assert times(requests, arrivals="closed_loop", rate_scale=2.0) == expected


def test_requests_of_one_instant_share_a_step_even_where_the_clock_rounds() -> None:
    # In floating point 0.2 + (0.9 - 0.2) < 0.9, so the clock never shows 0.9.
    assert 0.2 + (0.9 - 0.2) < 0.9
    arrivals_s = [0.2, 0.9, 0.9, 0.9]
    requests = [request(index, 4, 1, at_s) for index, at_s in enumerate(arrivals_s)]
    options = SchedulerOptions(max_num_seqs=8, max_num_batched_tokens=100)
    result = simulate(requests, NullCache(4), AffineCost(1e-3, 0.0, 0.0, 0.0), options)
    assert [step.num_prefill_tokens for step in result.steps] == [4, 12]
    assert result.records[1].arrival_s == pytest.approx(0.9, rel=1e-15)


def test_an_arrival_at_the_very_end_of_a_step_joins_the_next_one() -> None:
    requests = [request(0, 4, 5, 0.0), request(1, 4, 1, 2.0)]
    options = SchedulerOptions(max_num_seqs=8, max_num_batched_tokens=100)
    for leap in (True, False):
        result = simulate(requests, NullCache(4), ONE_SECOND, options, leap=leap)
        assert result.records[1].scheduled_s == 2.0
        assert result.records[1].finished_s == 3.0


def test_progress_counts_up_to_all_requests() -> None:
    seen: list[tuple[int, int]] = []
    requests = [request(index, 8, 1, float(index)) for index in range(4)]
    simulate(requests, NullCache(4), ONE_SECOND, progress=lambda *call: seen.append(call))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_requests_make_an_empty_result() -> None:
    result = simulate([], NullCache(4), ONE_SECOND)
    assert (result.records, result.steps) == ([], [])


@pytest.mark.parametrize(
    ("item", "options", "message"),
    [
        (request(1, 4, 1, None), {}, "request r1: it has no arrival_s"),
        (request(1, 4, 1, None), {"arrivals": "closed_loop"}, "request r1: it has no arrival_s"),
        (request(1, 4, 1, -1.0), {}, "request r1: arrival_s -1.0"),
        (request(1, 4, 1, nan), {}, "request r1: arrival_s nan"),
        (request(1, 4, 1, previous=1), {"arrivals": "closed_loop"}, "previous 1 .* 0 to 0"),
        (
            request(1, 4, 1, previous=0, delay_s=-2.0),
            {"arrivals": "closed_loop"},
            "request r1: delay_s -2.0",
        ),
        (request(1, 4, 1), {"arrivals": "open"}, "arrivals.mode: unknown name 'open'"),
        (request(1, 4, 1), {"rate_scale": 0.0}, "arrivals.rate_scale: 0.0"),
    ],
)
def test_what_cannot_be_sent_is_an_error_that_names_it(
    item: Request, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        times([request(0, 4, 1), item], **options)
