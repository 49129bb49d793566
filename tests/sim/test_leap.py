"""Leaping over many decode steps gives what single steps give."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hybridsim.cache.base import Lease, Match, PrefixCache
from hybridsim.records import RequestRecord
from hybridsim.request import Request
from hybridsim.sim.engine import simulate
from hybridsim.sim.scheduler import Scheduler
from hybridsim.sim.timed_result import SimResult
from tests.sim.workloads import ARRIVALS, AffineCost, Workload, workloads

TIMES = ("arrival_s", "scheduled_s", "first_token_s", "finished_s")


class LoggedCache:
    """Hands everything on and writes down every act that changed the cache, with its outcome."""

    def __init__(self, cache: PrefixCache) -> None:
        self._cache = cache
        self.log: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def acquire(
        self, request: Request, match: Match, num_tokens: int | None = None
    ) -> Lease | None:
        lease = self._cache.acquire(request, match, num_tokens)
        if lease is not None:
            self.log.append(("acquire", request.request_id, match.num_hit_tokens))
            self.log.append((lease.checkpoints, lease.num_evicted_tokens, lease.num_evicted_states))
        return lease

    def commit(self, lease: Lease, num_tokens: int) -> None:
        assert lease.num_tokens >= num_tokens, "no KV for what is to become reusable"
        self._cache.commit(lease, num_tokens)
        self.log.append(("commit", lease.request.request_id, num_tokens, lease.num_checkpoints))

    def grow(self, lease: Lease, num_tokens: int) -> bool:
        before = self._cache.usage(), lease.num_evicted_tokens, lease.num_evicted_states
        grown = self._cache.grow(lease, num_tokens)
        after = self._cache.usage(), lease.num_evicted_tokens, lease.num_evicted_states
        if before != after:
            self.log.append(("grow", lease.request.request_id, num_tokens, before, after))
        return grown

    def release(self, lease: Lease, *, finished: bool) -> None:
        self._cache.release(lease, finished=finished)
        self.log.append(("release", lease.request.request_id, finished, lease.num_checkpoints))


def run(workload: Workload, arrivals: str, cost: AffineCost, *, leap: bool) -> tuple[Any, ...]:
    cache = LoggedCache(workload.make_cache())
    result = simulate(
        workload.requests, cache, cost, workload.options, arrivals=arrivals, leap=leap
    )
    return result, cache.log


def without_times(record: RequestRecord) -> list[Any]:
    names = [name for name in record.__slots__ if name not in TIMES]
    return [getattr(record, name) for name in names]


def assert_close(one_s: float | None, other_s: float | None) -> None:
    assert (one_s is None) == (other_s is None)
    if one_s is not None:
        assert one_s == pytest.approx(other_s, rel=1e-9, abs=0)


def assert_equal_runs(leaping: SimResult, stepping: SimResult) -> None:
    assert len(leaping.records) == len(stepping.records)
    for one, other in zip(leaping.records, stepping.records, strict=True):
        assert without_times(one) == without_times(other)
        for name in TIMES:
            assert_close(getattr(one, name), getattr(other, name))
    assert sum(s.num_steps for s in leaping.steps) == len(stepping.steps)
    for name in ("num_decode_tokens", "num_prefill_tokens", "num_copied_bytes"):
        totals = [sum(getattr(s, name) for s in r.steps) for r in (leaping, stepping)]
        assert totals[0] == totals[1]
    busy_s = [sum(s.duration_s for s in r.steps) for r in (leaping, stepping)]
    assert busy_s[0] == pytest.approx(busy_s[1], rel=1e-9)


@settings(max_examples=250)
@given(workloads(), ARRIVALS)
def test_leaping_and_stepping_agree_when_arrivals_and_step_ends_coincide(
    workload: Workload, arrivals: str
) -> None:
    leaping, leap_log = run(workload, arrivals, AffineCost(), leap=True)
    stepping, step_log = run(workload, arrivals, AffineCost(), leap=False)
    assert leap_log == step_log
    assert_equal_runs(leaping, stepping)
    # These costs are exact in floating point, so the times are equal, not only close.
    assert [astuple(r) for r in leaping.records] == [astuple(r) for r in stepping.records]


@settings(max_examples=100)
@given(workloads(), ARRIVALS, st.floats(0.7, 1.3))
def test_leaping_and_stepping_agree_for_costs_that_round(
    workload: Workload, arrivals: str, factor: float
) -> None:
    # Irrational-looking prices: no step ends where an arrival falls except at the start.
    cost = AffineCost(0.0171 * factor, 0.00113 * factor, 1.7e-5 * factor, 1.3e-6 * factor)
    leaping, leap_log = run(workload, arrivals, cost, leap=True)
    stepping, step_log = run(workload, arrivals, cost, leap=False)
    assert leap_log == step_log
    assert_equal_runs(leaping, stepping)


@contextmanager
def asking_again_every_step() -> Iterator[None]:
    """Make the scheduler forget that the head of its queue was refused memory before."""
    plain = Scheduler._admit

    def forgetful(self: Scheduler, *args: Any) -> None:
        self._waiting.unblock()
        plain(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_admit", forgetful)
        yield


@settings(max_examples=200)
@given(workloads(), ARRIVALS)
def test_a_request_that_waits_for_memory_loses_nothing_by_not_asking_in_every_step(
    workload: Workload, arrivals: str
) -> None:
    leaping, _ = run(workload, arrivals, AffineCost(), leap=True)
    # Left out: a preempted request asks for its generated tokens after it was let in; where only
    # that fails, the attempt has evicted something, so asking once more is no longer the same.
    assume(not any(record.num_preemptions for record in leaping.records))
    with asking_again_every_step():
        asking, _ = run(workload, arrivals, AffineCost(), leap=False)
    assert_equal_runs(leaping, asking)
