"""What holds for every timed run, whatever the workload, the cache and the limits."""

import numpy as np
import pytest
from hypothesis import given, settings

from hybridsim.cache.null_cache import NullCache
from hybridsim.records import MissReason, RequestRecord, StepRecord
from hybridsim.sim.engine import simulate
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.replay import replay
from hybridsim.sim.timed_result import SimResult
from tests.sim.workloads import ARRIVALS, FREE, AffineCost, Workload, request, workloads

TIMES = ("arrival_s", "scheduled_s", "first_token_s", "finished_s")


def served(result: SimResult) -> list[RequestRecord]:
    return [r for r in result.records if r.miss_reason != MissReason.REFUSED]


def ends(steps: list[StepRecord]) -> list[float]:
    return [step.start_s + step.duration_s for step in steps]


@settings(max_examples=150)
@given(workloads(), ARRIVALS)
def test_laws_of_a_run(workload: Workload, arrivals: str) -> None:
    cache = workload.make_cache()
    result = simulate(workload.requests, cache, AffineCost(), workload.options, arrivals=arrivals)
    every_request_is_served_or_was_refused_for_its_size(workload, result)
    times_are_in_order(result)
    limits_hold(workload.options, result)
    every_token_is_computed_once(result)
    the_server_is_never_idle_while_somebody_waits(result)
    time_in_system_is_the_integral_of_the_number_in_system(result)
    nothing_is_held_afterwards(workload, result)


def every_request_is_served_or_was_refused_for_its_size(
    workload: Workload, result: SimResult
) -> None:
    empty = workload.make_cache()
    for item, record in zip(workload.requests, result.records, strict=True):
        assert record.request_id == item.request_id
        fits = empty.fits(item)
        assert fits == (record.miss_reason != MissReason.REFUSED)
        assert fits == (record.finished_s is not None)


def times_are_in_order(result: SimResult) -> None:
    for record in served(result):
        times_s = [getattr(record, name) for name in TIMES]
        assert times_s == sorted(times_s)
        if record.num_output_tokens <= 1 and not record.num_preemptions:
            assert record.first_token_s == record.finished_s
        if record.num_output_tokens > 1:
            assert record.first_token_s < record.finished_s
    for step, end_s in zip(result.steps[1:], ends(result.steps), strict=False):
        assert step.start_s >= end_s


def limits_hold(options: SchedulerOptions, result: SimResult) -> None:
    for step in result.steps:
        num_decodes = step.num_decode_tokens // step.num_steps
        assert 1 <= step.num_running <= options.max_num_seqs
        assert num_decodes <= step.num_running
        assert step.num_prefill_tokens + num_decodes > 0
        if options.chunked_prefill:
            assert step.num_prefill_tokens + num_decodes <= options.max_num_batched_tokens
        if step.num_steps > 1:
            assert step.num_prefill_tokens == 0


def every_token_is_computed_once(result: SimResult) -> None:
    """Per request: the prompt but for what was reused, then one decode for each further token."""
    records = served(result)
    num_decode_tokens = sum(step.num_decode_tokens for step in result.steps)
    num_prefill_tokens = sum(step.num_prefill_tokens for step in result.steps)
    num_preemptions = sum(record.num_preemptions for record in records)
    wanted_decodes = sum(max(record.num_output_tokens - 1, 0) for record in records)
    wanted_prefill = sum(record.num_prompt_tokens - record.num_hit_tokens for record in records)
    if not num_preemptions:
        assert (num_decode_tokens, num_prefill_tokens) == (wanted_decodes, wanted_prefill)
    # Finishing the recomputation yields a token, so a preempted decode needs one decode less.
    assert wanted_decodes - num_preemptions <= num_decode_tokens <= wanted_decodes


def the_server_is_never_idle_while_somebody_waits(result: SimResult) -> None:
    starts = [step.start_s for step in result.steps[1:]]
    for end_s, start_s in zip(ends(result.steps), starts, strict=False):
        for record in served(result):
            present = record.arrival_s < start_s and record.finished_s > end_s
            assert start_s == end_s or not present


def time_in_system_is_the_integral_of_the_number_in_system(result: SimResult) -> None:
    """Little's law, exactly: a request is in the system from the step that first sees it on."""
    starts = np.array([step.start_s for step in result.steps])
    integral = sum((s.num_running + s.num_waiting) * s.duration_s for s in result.steps)
    time_in_system_s = 0.0
    for record in served(result):
        seen_s = starts[np.searchsorted(starts, record.arrival_s)]
        time_in_system_s += record.finished_s - seen_s
    assert time_in_system_s == pytest.approx(integral, rel=1e-12, abs=1e-12)


def nothing_is_held_afterwards(workload: Workload, result: SimResult) -> None:
    cache = workload.make_cache()
    if isinstance(cache, NullCache):
        simulate(workload.requests, cache, FREE, workload.options, arrivals="serial")
        assert (cache.usage().kv_bytes, cache.usage().state_bytes) == (0, 0)


@settings(max_examples=150)
@given(workloads())
def test_infinite_speed_and_one_request_at_a_time_equal_replay(workload: Workload) -> None:
    timed = simulate(
        workload.requests, workload.make_cache(), FREE, workload.options, arrivals="serial"
    )
    replayed = replay(workload.requests, workload.make_cache())
    names = [name for name in RequestRecord.__slots__ if name not in TIMES]
    for one, other in zip(timed.records, replayed, strict=True):
        assert {n: getattr(one, n) for n in names} == {n: getattr(other, n) for n in names}


@settings(max_examples=30)
@given(workloads(), ARRIVALS)
def test_a_run_repeats_exactly(workload: Workload, arrivals: str) -> None:
    runs = [
        simulate(
            workload.requests,
            workload.make_cache(),
            AffineCost(0.01, 0.001, 1e-6, 1e-9),
            workload.options,
            arrivals=arrivals,
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_slot_with_constant_service_waits_like_an_m_d_1_queue(load: float) -> None:
    """Pollaczek-Khinchine for constant service S: mean wait = load * S / (2 * (1 - load))."""
    service_s, num_requests = 2.0, 20_000
    rng = np.random.default_rng(20)
    arrivals_s = np.cumsum(rng.exponential(service_s / load, num_requests))
    requests = [request(index, 1, 1, float(at_s)) for index, at_s in enumerate(arrivals_s)]
    cost = AffineCost(service_s, 0.0, 0.0, 0.0)
    result = simulate(requests, NullCache(1), cost, SchedulerOptions(max_num_seqs=1))
    waits_s = [record.scheduled_s - record.arrival_s for record in result.records]
    assert np.mean(waits_s) == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.05)
