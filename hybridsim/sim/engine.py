"""Timed mode: a discrete-event run of one server. The only file that knows simpy.

Two kinds of events exist: a request arrives, and a step (or a leap of many decode steps) ends.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Sequence
from math import inf

import simpy

from hybridsim.cache.base import PrefixCache
from hybridsim.cost.base import CostModel
from hybridsim.records import RequestRecord, StepRecord
from hybridsim.request import Request
from hybridsim.sim.arrivals import Arrivals, plan_arrivals
from hybridsim.sim.job import Job
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.scheduler import Scheduler
from hybridsim.sim.step import Step
from hybridsim.sim.timed_result import SimResult

OnProgress = Callable[[int, int], None]
Events = Generator[simpy.Event, None, None]


def simulate(
    requests: Sequence[Request],
    cache: PrefixCache,
    cost: CostModel,
    options: SchedulerOptions | None = None,
    *,
    arrivals: str = Arrivals.RECORDED,
    rate_scale: float = 1.0,
    leap: bool = True,
    on_progress: OnProgress | None = None,
) -> SimResult:
    """Send `requests` to one server until all have ended, then check the cache's laws.

    arrivals, rate_scale: see `plan_arrivals`. leap: take decode steps that differ only in context
    length as one event; False takes them one by one, with the same result and more time.
    on_progress: called with (requests ended, requests in all) whenever the first number rises.
    Raises UserError for a trace that cannot be sent so, AssertionError for a broken cache.
    """
    scheduler = Scheduler(cache, options or SchedulerOptions())
    server = _Server(requests, cache, cost, scheduler, leap=leap, on_progress=on_progress)
    server.run(arrivals, rate_scale)
    cache.check()
    return SimResult(server.records(), server.steps)


class _Server:
    """The processes of one run and what they share."""

    def __init__(
        self,
        requests: Sequence[Request],
        cache: PrefixCache,
        cost: CostModel,
        scheduler: Scheduler,
        *,
        leap: bool,
        on_progress: OnProgress | None,
    ) -> None:
        self._requests = requests
        self._cache = cache
        self._cost = cost
        self._scheduler = scheduler
        self._leap = leap
        self._on_progress = on_progress
        self._env = simpy.Environment(0.0)
        self._jobs: dict[int, Job] = {}  # request index -> job, in order of arrival
        self._index_of: list[int] = []  # job order -> request index
        self._num_ended = 0
        self._idle: simpy.Event | None = None
        self.steps: list[StepRecord] = []

    def run(self, arrivals: str, rate_scale: float) -> None:
        self._plan = plan_arrivals(self._requests, arrivals, rate_scale)
        self._env.process(self._send_starts())
        self._env.process(self._serve())
        self._env.run()
        num_missing = len(self._requests) - self._num_ended
        if num_missing or self._scheduler.num_running or self._scheduler.num_waiting:
            raise AssertionError(f"the run came to rest with {num_missing} requests not ended")

    def records(self) -> list[RequestRecord]:
        return [self._jobs[index].record for index in range(len(self._requests))]

    # Arrivals

    def _send_starts(self) -> Events:
        sent_s = 0.0
        for start_s, index in self._plan.starts:
            # Equal planned times are one event: the clock's rounding must not part them.
            if start_s > sent_s:
                yield self._env.timeout(max(0.0, start_s - self._env.now))
                sent_s = start_s
            self._send(index)

    def _send_later(self, delay_s: float, index: int) -> Events:
        yield self._env.timeout(delay_s)
        self._send(index)

    def _send(self, index: int) -> None:
        self._jobs[index] = self._scheduler.submit(self._requests[index], self._env.now)
        self._index_of.append(index)
        self._note_ended()
        if self._idle is not None and not self._idle.triggered:
            self._idle.succeed()

    def _note_ended(self) -> None:
        """Count the jobs that ended and send those that follow them."""
        for job in self._scheduler.collect():
            self._num_ended += 1
            for delay_s, index in self._plan.followers[self._index_of[job.order]]:
                self._env.process(self._send_later(delay_s, index))
            if self._on_progress is not None:
                self._on_progress(self._num_ended, len(self._requests))

    # Steps

    def _serve(self) -> Events:
        env = self._env
        while self._num_ended < len(self._requests):
            # Whatever happens at this instant happens before the next step is formed, so that
            # the order in which simpy holds simultaneous events decides nothing.
            while env.peek() <= env.now:
                yield env.timeout(0)
            step = self._scheduler.schedule(env.now)
            self._note_ended()
            if step is None:
                if env.peek() > env.now:  # else a follower of a refused request is about to come
                    self._idle = env.event()
                    yield self._idle
                continue
            step = self._lengthen(step)
            duration_s = self._duration_s(step, step.num_steps)
            self._record(step, duration_s)
            yield env.timeout(duration_s)
            self._scheduler.complete(step, env.now)
            self._note_ended()

    def _lengthen(self, step: Step) -> Step:
        """Leap: repeat the step until something could change it, at the latest the next arrival."""
        limit = self._scheduler.leap_length(step) if self._leap else 1
        if limit == 1:
            return step
        now_s, arrival_s = self._env.now, self._env.peek()  # the server itself has nothing pending
        if arrival_s < inf:
            # Up to the first step end at or after the arrival; times rise with the step's number.
            limit = 1 + bisect_left(
                range(1, limit), arrival_s, key=lambda count: now_s + self._duration_s(step, count)
            )
        return self._scheduler.extend(step, limit)

    def _duration_s(self, step: Step, num_steps: int) -> float:
        num_decodes, context_tokens = step.num_decodes, step.decode_context_tokens
        first_s = self._cost.step_s(step.work, num_decodes, context_tokens, step.copied_bytes)
        if num_steps == 1:
            return first_s
        return first_s + self._cost.decode_steps_s(
            num_steps - 1, num_decodes, context_tokens + num_decodes
        )

    def _record(self, step: Step, duration_s: float) -> None:
        usage = self._cache.usage()
        self.steps.append(
            StepRecord(
                start_s=self._env.now,
                duration_s=duration_s,
                num_steps=step.num_steps,
                num_running=step.num_running,
                num_waiting=step.num_waiting,
                num_prefill_tokens=step.num_prefill_tokens,
                num_decode_tokens=step.num_decode_tokens,
                num_copied_bytes=step.copied_bytes,
                kv_bytes=usage.kv_bytes,
                state_bytes=usage.state_bytes,
            )
        )
