"""Continuous batching over a prefix cache: who runs in the next step. It knows no clock, no price.

The shape follows vLLM's V1 scheduler: decodes first, then prefills already begun, then admissions
from the head of the waiting queue, all under one token budget; when pages run out the latest
request is preempted and computed again.
"""

from dataclasses import replace

from hybridsim.cache.base import Lease, Match, PrefixCache
from hybridsim.errors import UserError
from hybridsim.records import BatchChange, MissReason
from hybridsim.request import Request
from hybridsim.sim.admission import account, admitted, new_record
from hybridsim.sim.decode_group import DecodeGroup
from hybridsim.sim.job import Job
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.step import ScheduledChunk, Step, cut_chunks
from hybridsim.sim.waiting import WaitingQueue


class Scheduler:
    """Forms steps. Verbs in order: `submit` at any time; `schedule`, perhaps `extend`, `complete`.

    `cache.page_tokens` (1 where the cache has none) says how often a decoding request needs memory.
    `changes`: who entered and left the batch; its requests are numbers of submission.
    """

    def __init__(self, cache: PrefixCache, options: SchedulerOptions) -> None:
        self._cache = cache
        self._options = options
        self._num_submitted = 0
        self._waiting = WaitingQueue(options.order)
        self._running: dict[Job, None] = {}  # in order of admission
        self._prefilling: dict[Job, None] = {}  # those of them with prompt left, same order
        self._decoding = DecodeGroup(getattr(cache, "page_tokens", 1))
        self._copied_bytes = 0
        self._ended: list[Job] = []
        self._num_steps = 0
        self.changes: list[BatchChange] = []

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    def submit(self, request: Request, now_s: float, ideal_tokens: int | None = None) -> Job:
        """Queue a request that arrives now; refuse it at once if it can never fit.

        ideal_tokens: what an infinite cache would have hit; only for the record's `miss_reason`.
        """
        if request.num_prompt_tokens < 1:
            raise UserError(
                f"request {request.request_id}", "its prompt is empty; allowed: >= 1 token"
            )
        job = Job(self._num_submitted, request, new_record(request), ideal_tokens)
        job.record.arrival_s = now_s
        self._num_submitted += 1
        if self._cache.fits(request):
            self._waiting.push(job)
        else:
            self._refuse(job)
        return job

    def collect(self) -> list[Job]:
        """Jobs that ended (finished or refused) since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def schedule(self, now_s: float) -> Step | None:
        """Choose the next step and take its memory. None when nothing runs and nobody waits."""
        preempted = self._take_pages()
        chunks: list[ScheduledChunk] = []
        budget = self._options.max_num_batched_tokens - len(self._decoding)
        for job in list(self._prefilling):
            budget -= self._add_chunks(job, budget, chunks)
        # Memory was just found short; a newcomer would be preempted again in the next step.
        if not preempted or not self._running:
            self._admit(budget, chunks, now_s)
        if not self._running:
            return None
        copied_bytes, self._copied_bytes = self._copied_bytes, 0
        return Step(
            chunks=tuple(chunks),
            num_decodes=len(self._decoding),
            decode_context_tokens=self._decoding.context_tokens,
            copied_bytes=copied_bytes,
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            may_repeat=not chunks and not (preempted and self._waiting),
        )

    def leap_length(self, step: Step) -> int:
        """Steps equal to `step` that can follow each other, itself included; changes nothing.

        Why the waiting cannot be forgotten meanwhile: after a step without chunks and preemption
        the head of the queue waits because the batch is full or because its memory cannot be had.
        The batch stays the same for the whole leap. Memory only shrinks: members grow, which takes
        free pages and evicts, so a later lookup matches no more and a later acquire finds no more
        than the one that just failed. Pages running short end a leap in `extend`.
        """
        return self._decoding.steps_to_event() if step.may_repeat else 1

    def extend(self, step: Step, num_steps: int) -> Step:
        """Take memory for up to `num_steps` (<= leap_length) steps in all; fewer if pages run out.

        Pages are taken in the order in which single steps would take them, and nothing else acts
        on the cache before `complete`, so the cache makes the same decisions either way. A `grow`
        repeated by the step after a shortage changes nothing.
        """
        for ahead, job, num_tokens in self._decoding.page_needs(num_steps):
            if not self._cache.grow(job.held(), num_tokens):
                return replace(step, num_steps=ahead)
        return replace(step, num_steps=num_steps)

    def complete(self, step: Step, now_s: float) -> None:
        """The step has run: save checkpoints, hand out tokens, end jobs that have all of theirs."""
        self._num_steps += 1
        self._decoding.advance(step.num_steps)
        for job, position in self._decoding.pop_at_stop():
            # The cache may hear of growth only once a page; a checkpoint needs the exact length.
            self._cache.grow(job.held(), position)
            self._commit(job, position)
        for job in self._decoding.pop_ended():
            self._finish(job, now_s)
        for chunk in step.chunks:
            self._complete_chunk(chunk, now_s)

    # Memory of the decodes

    def _take_pages(self) -> bool:
        """Memory for one more token of every decode; whether somebody was preempted for it."""
        preempted = False
        for job in self._decoding.needing_page():
            while job in self._decoding and not self._cache.grow(
                job.held(), self._decoding.num_tokens(job) + 1
            ):
                # The one that is short may be its own victim: the latest has the least to lose.
                self._preempt(max(self._running, key=self._waiting.rank))
                preempted = True
        return preempted

    def _preempt(self, job: Job) -> None:
        if job in self._decoding:
            self._decoding.remove(job)
        job.record.num_preemptions += 1
        self._release(job, finished=False)
        self._waiting.push(job)

    # Prefill

    def _admit(self, budget: int, chunks: list[ScheduledChunk], now_s: float) -> None:
        """Start waiting jobs in order of rank, until budget, batch or memory stops the first."""
        while budget > 0 and len(self._running) < self._options.max_num_seqs:
            job = self._waiting.head()
            if job is None:
                return
            match = self._cache.lookup(job.request)
            num_new_tokens = job.num_prefill_tokens - job.num_reusable_tokens(match.num_hit_tokens)
            if not self._options.chunked_prefill and chunks and num_new_tokens > budget:
                return
            lease = self._cache.acquire(job.request, match, job.num_prefill_tokens)
            if lease is None and self._running:
                self._waiting.block_head()
                return
            self._waiting.pop()
            if lease is None:
                self._refuse(job)  # not even alone: `fits` does not see what the policy pins
                continue
            if job.record.scheduled_s is None:
                self._write_admission(job, match, now_s)
            self._start(job, lease)
            budget -= self._add_chunks(job, budget, chunks)

    def _write_admission(self, job: Job, match: Match, now_s: float) -> None:
        record = admitted(job.request, match, job.ideal_tokens)
        record.arrival_s, record.scheduled_s = job.record.arrival_s, now_s
        job.record = record

    def _start(self, job: Job, lease: Lease) -> None:
        job.start(lease)
        self._running[job] = self._prefilling[job] = None
        self.changes.append(BatchChange(job.order, True, self._num_steps))
        self._copied_bytes += lease.num_copied_bytes

    def _add_chunks(self, job: Job, budget: int, chunks: list[ScheduledChunk]) -> int:
        """Append the job's chunks for this step; returns their tokens."""
        end = job.num_prefill_tokens
        if self._options.chunked_prefill:
            end = min(end, job.num_computed + budget)
        chunks.extend(cut_chunks(job, end))
        return end - job.num_computed

    def _complete_chunk(self, chunk: ScheduledChunk, now_s: float) -> None:
        job = chunk.job
        job.num_computed = chunk.end
        if job.stops and job.stops[-1] == chunk.end:
            self._commit(job, job.stops.pop())
        if chunk.end < job.num_prefill_tokens:
            return
        del self._prefilling[job]
        if job.record.first_token_s is None:
            job.record.first_token_s = now_s
        job.num_generated += 1  # by the step that finishes the prompt
        if job.num_generated < job.request.num_output_tokens:
            self._decoding.add(job)
        else:
            self._finish(job, now_s)

    # What the cache is told

    def _commit(self, job: Job, num_tokens: int) -> None:
        """Copies made here run after the state exists: they delay the step that follows."""
        lease = job.held()
        before_bytes = lease.num_copied_bytes
        self._cache.commit(lease, num_tokens)
        self._copied_bytes += lease.num_copied_bytes - before_bytes
        self._waiting.unblock()  # pages that turned out to be resident already were given back

    def _finish(self, job: Job, now_s: float) -> None:
        """The last token is never fed back: KV ends one token before the output does."""
        self._cache.grow(job.held(), job.num_computed)
        job.record.finished_s = now_s
        self._release(job, finished=True)
        self._ended.append(job)

    def _release(self, job: Job, *, finished: bool) -> None:
        del self._running[job]
        self.changes.append(BatchChange(job.order, False, self._num_steps))
        self._prefilling.pop(job, None)
        lease = job.stop()
        before_bytes = lease.num_copied_bytes
        self._cache.release(lease, finished=finished)
        self._copied_bytes += lease.num_copied_bytes - before_bytes
        account(job.record, lease)
        self._waiting.unblock()

    def _refuse(self, job: Job) -> None:
        job.record.miss_reason = MissReason.REFUSED
        self._ended.append(job)
