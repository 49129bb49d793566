"""Timed mode: a discrete-event run of one server. The only file that knows simpy.

Two kinds of events exist: a request arrives, and a step (or a leap of many decode steps) ends.
"""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

import simpy

from hybridsim.cache.base import PrefixCache
from hybridsim.cost.base import CostModel
from hybridsim.errors import UserError
from hybridsim.records import BatchChange, RequestRecord, StepRecord
from hybridsim.request import Request
from hybridsim.sim.arrivals import LONGEST_S, ArrivalPlan, Arrivals, plan_arrivals
from hybridsim.sim.job import Job
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.replay import Progress
from hybridsim.sim.scheduler import Scheduler
from hybridsim.sim.step import Step
from hybridsim.sim.timed_result import SimResult

Events = Generator[simpy.Event, None, None]


def simulate(
    requests: Sequence[Request],
    cache: PrefixCache,
    cost: CostModel,
    options: SchedulerOptions | None = None,
    *,
    arrivals: str = Arrivals.RECORDED,
    rate_scale: float = 1.0,
    ideal_tokens: Sequence[int] | None = None,
    leap: bool = True,
    progress: Progress | None = None,
) -> SimResult:
    """Send `requests` to one server until all have ended, then check the cache's laws.

    arrivals, rate_scale: see `plan_arrivals`. ideal_tokens: as in `replay`.
    leap: take decode steps that differ only in context length as one event; False takes them one
    by one, with the same result and more time.
    progress: called with (requests ended, requests in all) whenever the first number rises.
    Raises UserError for a trace that cannot be sent so, AssertionError for a broken cache.
    """
    plan = plan_arrivals(requests, arrivals, rate_scale)
    scheduler = Scheduler(cache, options or SchedulerOptions())
    run = _Run(requests, ideal_tokens, plan, cache, cost, scheduler, leap, progress)
    run.to_the_end()
    cache.check()
    return SimResult(run.records(), run.steps, run.changes())


@dataclass(eq=False)
class _Run:
    """One server, those who send to it, and the clock that they share.

    `jobs`: request index -> job, in order of arrival. `index_of`: job order -> request index.
    """

    requests: Sequence[Request]
    ideal_tokens: Sequence[int] | None
    plan: ArrivalPlan
    cache: PrefixCache
    cost: CostModel
    scheduler: Scheduler
    leap: bool
    progress: Progress | None
    env: simpy.Environment = field(default_factory=lambda: simpy.Environment(0.0))
    jobs: dict[int, Job] = field(default_factory=dict)
    index_of: list[int] = field(default_factory=list)
    num_ended: int = 0
    idle: simpy.Event | None = None
    steps: list[StepRecord] = field(default_factory=list)

    def to_the_end(self) -> None:
        self.env.process(self._send_starts())
        self.env.process(self._serve())
        self.env.run()
        num_missing = len(self.requests) - self.num_ended
        assert not num_missing, f"the run came to rest with {num_missing} requests not ended"
        assert not self.scheduler.num_running, "a request that has ended still runs"

    def records(self) -> list[RequestRecord]:
        return [self.jobs[index].record for index in range(len(self.requests))]

    def changes(self) -> list[BatchChange]:
        return [replace(c, request=self.index_of[c.request]) for c in self.scheduler.changes]

    # Arrivals

    def _send_starts(self) -> Events:
        sent_s = 0.0
        for start_s, index in self.plan.starts:
            # Equal planned times are one event: the clock's rounding must not part them.
            if start_s > sent_s:
                yield self.env.timeout(max(0.0, start_s - self.env.now))
                sent_s = start_s
            self._send(index)

    def _send_later(self, delay_s: float, index: int) -> Events:
        yield self.env.timeout(delay_s)
        self._send(index)

    def _send(self, index: int) -> None:
        ideal = None if self.ideal_tokens is None else int(self.ideal_tokens[index])
        self.jobs[index] = self.scheduler.submit(self.requests[index], self.env.now, ideal)
        self.index_of.append(index)
        self._note_ended()
        if self.idle is not None and not self.idle.triggered:
            self.idle.succeed()

    def _note_ended(self) -> None:
        """Count the jobs that ended and send those that follow them."""
        for job in self.scheduler.collect():
            self.num_ended += 1
            for delay_s, index in self.plan.followers[self.index_of[job.order]]:
                self.env.process(self._send_later(delay_s, index))
            if self.progress is not None:
                self.progress(self.num_ended, len(self.requests))

    # Steps

    def _serve(self) -> Events:
        env = self.env
        while self.num_ended < len(self.requests):
            # Whatever happens at this instant happens before the next step is formed, so that
            # the order in which simpy holds simultaneous events decides nothing.
            while env.peek() <= env.now:
                yield env.timeout(0)
            step = self.scheduler.schedule(env.now)
            self._note_ended()
            if step is None:
                if env.peek() > env.now:  # else a follower of a refused request is about to come
                    self.idle = env.event()
                    yield self.idle
                continue
            first_s = self.cost.step_s(
                step.work, step.num_decodes, step.decode_context_tokens, step.copied_bytes
            )
            step = self._lengthen(step, first_s)
            duration_s = self._duration_s(step, first_s, step.num_steps)
            if not env.now + duration_s <= LONGEST_S:
                raise UserError("gpu", f"a step takes {duration_s:.3g} s; allowed: below 1e12 s")
            self._record(step, duration_s)
            yield env.timeout(duration_s)
            self.scheduler.complete(step, env.now)
            self._note_ended()

    def _lengthen(self, step: Step, first_s: float) -> Step:
        """Leap: repeat the step until something could change it, at the latest the next arrival."""
        limit = self.scheduler.leap_length(step) if self.leap else 1
        now_s, arrival_s = self.env.now, self.env.peek()  # the server itself has nothing pending
        if limit == 1 or now_s + first_s >= arrival_s:
            return step
        if now_s + self._duration_s(step, first_s, limit) > arrival_s:
            # Up to the first step end at or after the arrival; ends rise with the number of steps.
            limit = bisect_left(
                range(limit),
                arrival_s,
                lo=2,
                key=lambda count: now_s + self._duration_s(step, first_s, count),
            )
        return self.scheduler.extend(step, limit)

    def _duration_s(self, step: Step, first_s: float, num_steps: int) -> float:
        if num_steps == 1:
            return first_s
        context_tokens = step.decode_context_tokens + step.num_decodes
        return first_s + self.cost.decode_steps_s(num_steps - 1, step.num_decodes, context_tokens)

    def _record(self, step: Step, duration_s: float) -> None:
        usage = self.cache.usage()
        self.steps.append(
            StepRecord(
                start_s=self.env.now,
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
