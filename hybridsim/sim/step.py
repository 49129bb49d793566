"""What the scheduler hands out: the work of one engine step, or of many equal decode steps."""

from collections.abc import Iterator
from dataclasses import dataclass

from hybridsim.cost.base import PrefillChunk
from hybridsim.sim.job import Job


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """Prefill work of one job. `work` is what the cost model sees."""

    job: Job
    work: PrefillChunk

    @property
    def end(self) -> int:
        """Position (tokens) up to which the job is computed after this chunk."""
        return self.work.num_prefix_tokens + self.work.num_new_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """`num_steps` engine steps that differ only in the growing contexts; above 1 for decode only.

    A job may have several chunks in one step, in rising order, where planned checkpoints cut its
    prompt. `decode_context_tokens`: tokens in context when the first step starts, summed over the
    `num_decodes` requests. `copied_bytes`: state bytes copied at the head of the first step.
    `may_repeat`: whether the next step is the same again unless something ends or arrives.
    """

    chunks: tuple[ScheduledChunk, ...]
    num_decodes: int
    decode_context_tokens: int
    copied_bytes: int
    num_running: int
    num_waiting: int
    may_repeat: bool
    num_steps: int = 1

    @property
    def work(self) -> tuple[PrefillChunk, ...]:
        return tuple(chunk.work for chunk in self.chunks)

    @property
    def num_prefill_tokens(self) -> int:
        return sum(chunk.work.num_new_tokens for chunk in self.chunks)

    @property
    def num_decode_tokens(self) -> int:
        return self.num_decodes * self.num_steps


def cut_chunks(job: Job, end: int) -> Iterator[ScheduledChunk]:
    """The job's prefill up to `end`, cut at its stops: a state exists only where a chunk ends."""
    position = job.num_computed
    for stop in reversed(job.stops):
        if stop >= end:
            break
        yield ScheduledChunk(job, PrefillChunk(stop - position, position))
        position = stop
    if position < end:
        yield ScheduledChunk(job, PrefillChunk(end - position, position))
