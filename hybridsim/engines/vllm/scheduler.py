"""One engine step after another: which requests run, and how many tokens of each.

`schedule` decides a step, `complete` writes down that it has run. Time is counted in steps only.
"""

from hybridsim.engines.vllm.cache_manager import CacheManager
from hybridsim.engines.vllm.chunking import chunk_rule
from hybridsim.engines.vllm.layout import Layout
from hybridsim.engines.vllm.lookup import Hit
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.engines.vllm.pace import DecodePace
from hybridsim.engines.vllm.sequence import Sequence
from hybridsim.engines.vllm.step import Step, WaitingQueue


class Scheduler:
    """Continuous batching with chunked prefill: running requests first, then waiting ones.

    record_held: keep the most real blocks that each request held, per group (costs time).
    """

    def __init__(
        self, layout: Layout, options: VLLMOptions, num_blocks: int, *, record_held: bool = False
    ) -> None:
        self.options = options
        self.layout = layout
        self.cache = CacheManager(layout, options, num_blocks)
        self.running: list[Sequence] = []
        self.waiting = WaitingQueue(by_priority=options.sched_policy == "priority")
        self.num_steps = 0
        self.is_quiet = False
        self._refused: Sequence | None = None
        self._changes_before = self._batch_before = 0
        self._only_decodes = False
        self._record_held = record_held
        self._old = options.version == "0.27.1"
        self._pace = DecodePace(options, layout.block_size)
        self._chunk_rule = chunk_rule(layout, options, saves_forks=self.cache.saves_forks)

    # -- queues ----------------------------------------------------------------------------

    def add(self, seq: Sequence) -> None:
        """A request arrives."""
        self.waiting.add(seq)
        self.is_quiet = False

    def abort(self, seq: Sequence) -> None:
        """Give a waiting request up."""
        self.waiting.remove(seq)
        self.cache.release(seq)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    # -- a step ----------------------------------------------------------------------------

    def schedule(self) -> Step:
        """Decide the next step and take its memory. `complete` must follow before the next call."""
        self.num_steps += 1
        self._changes_before, self._batch_before = self.cache.pool.num_changes, len(self.running)
        step = Step(budget=self.options.max_num_batched_tokens)
        self._refused = None
        self.cache.start_step()
        self.cache.pool.evictions.clear()
        threshold = self._long_prefill_threshold()
        self._schedule_running(step, threshold)
        step.has_running = bool(step.num_new_tokens)
        if not step.preempted:
            self._schedule_waiting(step, threshold)
        self.cache.take_copies()
        self._only_decodes = self._pace.is_steady(step, self.running)
        for seq, num_tokens in step.num_new_tokens.items():
            self._write_down(seq, num_tokens)
        return step

    def _long_prefill_threshold(self) -> int:
        """0.33.0 lifts the cap when there is nobody else to starve."""
        alone = len(self.running) + len(self.waiting) <= 1
        return 0 if alone and not self._old else self.options.long_prefill_token_threshold

    def _write_down(self, seq: Sequence, num_tokens: int) -> None:
        seq.compute(num_tokens)
        if self._record_held:
            held = [group.num_held(seq) for group in self.cache.groups]
            seq.held = [max(pair) for pair in zip(held, seq.held or held, strict=True)]

    def _schedule_running(self, step: Step, threshold: int) -> None:
        options, position = self.options, 0
        while position < len(self.running) and step.budget > 0:
            seq = self.running[position]
            num_new = seq.num_tokens + seq.num_draft_tokens - seq.num_computed_tokens
            if 0 < threshold < num_new:
                num_new = threshold
            num_new = min(num_new, step.budget)
            num_new = min(num_new, options.max_model_len - seq.num_computed_tokens - 1)
            num_new = self._chunk_rule.cut(seq, seq.num_computed_tokens, num_new)
            num_new = self._chunk_rule.leave_lookahead(seq, seq.num_computed_tokens, num_new)
            if num_new == 0:
                position += 1
                continue
            while not self._allocate(seq, num_new):
                victim, position = self._preempt(step, position)
                if victim is seq:
                    break
            if not seq.is_running:
                if options.sched_policy == "priority" and not self._old:
                    continue
                break
            self._schedule(step, seq, num_new)
            position += 1

    def _schedule(self, step: Step, seq: Sequence, num_new: int) -> None:
        drafts = min(num_new + seq.num_computed_tokens - seq.num_tokens, seq.num_draft_tokens)
        step.add(seq, num_new, max(drafts, 0))
        step.has_prefill |= seq.is_prefilling
        seq.num_draft_tokens = 0

    def _allocate(self, seq: Sequence, num_new: int, hit: Hit | None = None) -> bool:
        pool = self.cache.pool
        taken, first_eviction = pool.num_taken, len(pool.evictions)
        if hit is None:
            done = self.cache.allocate(seq, num_new)
        else:
            done = self.cache.allocate(
                seq, num_new, hit, is_admission=True, is_busy=bool(self.running)
            )
        seq.num_allocated_blocks += pool.num_taken - taken
        seq.evictions += pool.evictions[first_eviction:]
        del pool.evictions[first_eviction:]
        seq.num_refusals += not done
        return done

    def _preempt(self, step: Step, position: int) -> tuple[Sequence, int]:
        """Send the last running request (by priority: the least urgent) back to the queue."""
        if self.options.sched_policy == "priority":
            victim = max(self.running, key=lambda s: (s.priority, s.index))
            place = self.running.index(victim)
            del self.running[place]
            was_scheduled = victim in step.num_new_tokens
            if was_scheduled:
                step.undo(victim)
            if was_scheduled if self._old else place < position:
                position -= 1
        else:
            victim = self.running.pop()
        self.cache.release(victim)
        victim.lose_all()
        self.waiting.add(victim, first=True)
        step.preempted.append(victim)
        return victim, position

    # -- admission -------------------------------------------------------------------------

    def _schedule_waiting(self, step: Step, threshold: int) -> None:
        """Admit from the head; the first request that cannot start stops all behind it."""
        skipped: list[Sequence] = []
        while self.waiting and step.budget > 0 and len(self.running) < self.options.max_num_seqs:
            seq = self.waiting.head
            hit = self.cache.find(seq)
            seq.junction = hit.fork
            num_new, drafts = self._first_chunk(step, seq, hit, threshold)
            if num_new == 0:
                break
            num_new = self._chunk_rule.leave_lookahead(seq, hit.num_hit_tokens, num_new)
            if num_new == 0:
                skipped.append(self.waiting.pop())
                continue
            owner = self.cache.owner_of(seq, hit)
            if not self._allocate(seq, num_new, hit):
                self._refused = seq
                break
            self.waiting.pop()
            self.running.append(seq)
            seq.is_running = True
            seq.num_computed_tokens = hit.num_hit_tokens
            if not seq.chunks:
                seq.hit_owner = owner
                seq.num_match_tokens = hit.num_match_tokens
                seq.num_dropped_tokens = hit.num_dropped_tokens
            step.add(seq, num_new, drafts)
        self.waiting.add_first(skipped)

    def _first_chunk(self, step: Step, seq: Sequence, hit: Hit, threshold: int) -> tuple[int, int]:
        """(tokens, drafts among them) of the chunk after the hit; no tokens when it cannot start.

        A request with one token left to compute is padded to the shape of a decode with drafts.
        """
        start = hit.num_hit_tokens
        num_new, drafts = self._pace.first_tokens(step, seq, start)
        if num_new == 0:
            return 0, 0
        if 0 < threshold < num_new:
            num_new = threshold
        num_new = self._chunk_rule.cut(seq, start, min(num_new, step.budget))
        if drafts and num_new not in (0, 1 + drafts) and not self._old:
            return 1, 0
        return num_new, drafts

    # -- results ---------------------------------------------------------------------------

    def complete(self, step: Step) -> list[Sequence]:
        """The step has run: append its tokens, propose drafts, free what finished (returned)."""
        finished = []
        for seq in step.num_new_tokens:
            drafts = step.num_drafts.get(seq, 0)
            if seq.num_computed_tokens - drafts < seq.num_tokens:
                continue
            self._pace.append_output(seq, drafts)
            if self.options.spec_k and not self._old:
                self.cache.commit(seq, seq.num_computed_tokens)
            if seq.is_finished:
                finished.append(seq)
                seq.finished_step = self.num_steps
                self.cache.release(seq)
            elif self.options.spec_k and not seq.is_prefilling:
                seq.num_draft_tokens = self.options.spec_k
        if finished:
            self.running = [seq for seq in self.running if not seq.is_finished]
        unchanged = self._changes_before == self.cache.pool.num_changes
        same_batch = self._batch_before == len(self.running)
        self.is_quiet = self._only_decodes and unchanged and same_batch
        return finished

    # -- leaps -----------------------------------------------------------------------------

    def num_quiet_steps(self) -> int:
        """Coming steps that would repeat the last one and leave the pool as it is.

        Each running request decodes and stays clear of a block boundary, of its end and of the
        model's length; nobody who waits could be admitted, as the last step has shown.
        """
        if not self.is_quiet or not self.running:
            return 0
        return max(min(self._pace.steps_to_event(seq) for seq in self.running), 0)

    def leap(self, most: int | None = None) -> int:
        """Take the quiet steps at once, at most `most` (the next arrival); returns their number."""
        num_steps = self.num_quiet_steps()
        if most is not None:
            num_steps = max(min(num_steps, most), 0)
        for seq in self.running if num_steps else ():
            self._pace.advance(seq, num_steps)
        if self._refused is not None:
            self._refused.num_refusals += num_steps
        self.num_steps += num_steps
        return num_steps
