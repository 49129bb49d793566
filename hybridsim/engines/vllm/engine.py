"""The vLLM engines behind the common records: requests in, one record and its losses each out."""

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from itertools import count

from hybridsim.engines.content import Content
from hybridsim.engines.misses import MissLedger, Reuse, main_reason
from hybridsim.engines.vllm.layout import Layout, check_startup
from hybridsim.engines.vllm.names import block_keys
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.engines.vllm.scheduler import Scheduler
from hybridsim.engines.vllm.sequence import Sequence
from hybridsim.records import HitSource, MissReason, RequestRecord
from hybridsim.request import Request, Spans

MOST_IDLE_STEPS = 5
MOST_PREEMPTIONS = 50


class VLLMEngine:
    """Serves requests one after another (`serve`) or several at once (`run_concurrent`).

    Output tokens whose content the trace does not know are new content; a request without output
    generates one token, as the engine does. A prompt that leaves no room below max_model_len is
    refused at the door. A request that can never be admitted stays at the queue's head: `stuck`
    names it, and all later ones are refused (unless `abort_stuck`).
    `misses`: tokens lost so far by reason. `last_sequence`, `last_losses`: of the latest request.
    `num_too_long`: prompts refused at the door. `num_cut`: outputs that ended at max_model_len.
    """

    def __init__(self, options: VLLMOptions, layout: Layout, num_blocks: int) -> None:
        if options.check_startup:
            check_startup(layout, options, num_blocks, "cache.num_blocks")
        self.name = f"vllm-{options.version}"
        self.options = options
        self.layout = layout
        self.num_blocks = num_blocks
        self.scheduler = Scheduler(layout, options, num_blocks)
        self.misses = MissLedger(layout.unit if layout.partial_hits else layout.block_size)
        self.stuck: str | None = None
        self.num_too_long = self.num_cut = 0
        self.last_sequence: Sequence | None = None
        self.last_losses: dict[MissReason, int] = {}
        self._indices = count()
        self._num_prompt_tokens: list[int] = []

    # -- one after another -----------------------------------------------------------------

    def serve(self, request: Request) -> RequestRecord:
        """Serve one request to its end and record it."""
        content, seq = self.sequence(request)
        self.last_sequence, self.last_losses = seq, {}
        if not self._is_taken(seq):
            return self._refused(request, seq)
        self.scheduler.add(seq)
        idle = 0
        while not seq.is_finished:
            self.scheduler.leap()
            step = self.scheduler.schedule()
            self.scheduler.complete(step)
            idle = 0 if step.num_new_tokens else idle + 1
            if idle > MOST_IDLE_STEPS or seq.num_preemptions > MOST_PREEMPTIONS:
                self._give_up(seq, content)
                return self._refused(request, seq)
        return self._finished(request, content, seq)

    def sequence(self, request: Request) -> tuple[Content, Sequence]:
        """The request in the engine's terms; it is not queued yet."""
        output = request.output if request.num_output_tokens else Spans.unknown(1)
        content = Content.of(request.prompt, output)
        lookahead = self.options.lookahead_tokens
        self._num_prompt_tokens.append(request.num_prompt_tokens)
        seq = Sequence(
            index=next(self._indices),
            request_id=request.request_id,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=max(request.num_output_tokens, 1),
            keys=block_keys(content, self.layout.unit, lookahead) if self.options.caching else [],
            unit=self.layout.unit,
            lookahead_tokens=lookahead,
            priority=request.priority,
        )
        return content, seq

    def _is_taken(self, seq: Sequence) -> bool:
        """Whether a request that arrives gets into the queue."""
        fits = 0 < seq.num_prompt_tokens < self.options.max_model_len
        self.num_too_long += not fits
        return fits and self.stuck is None

    def _give_up(self, seq: Sequence, content: Content) -> None:
        """What it had computed before it was preempted may still be hit by others."""
        if not self.options.abort_stuck:
            self.stuck = seq.request_id
            return
        self.scheduler.abort(seq)
        self.misses.remember(content, seq.num_lost_tokens, tuple(sorted(set(seq.checkpoints))))

    # -- several at once -------------------------------------------------------------------

    def run_concurrent(
        self, requests: SequenceOf[Request], arrival_steps: Iterable[int]
    ) -> list[RequestRecord]:
        """Serve a whole trace, request i arriving before step `arrival_steps[i]` (rising).

        Records come in the order of the requests. Misses are explained when a request finishes,
        against all that finished before it.
        """
        pending = list(zip(requests, arrival_steps, strict=True))[::-1]
        live: dict[int, tuple[int, Request, Content]] = {}
        records: dict[int, RequestRecord] = {}
        position, now, idle = 0, self.scheduler.num_steps, 0
        while pending or live:
            while pending and pending[-1][1] <= now:
                self._arrive(position, pending.pop()[0], live, records)
                position += 1
            if not live and pending:
                now = max(now, pending[-1][1])
                continue
            if pending:
                now += self.scheduler.leap(pending[-1][1] - now - 1)
            else:
                now += self.scheduler.leap()
            step = self.scheduler.schedule()
            now += 1
            for seq in self.scheduler.complete(step):
                place, request, content = live.pop(seq.index)
                records[place] = self._finished(request, content, seq)
            idle = 0 if step.num_new_tokens or not live else idle + 1
            if idle > MOST_IDLE_STEPS:
                self._unblock(live, records)
                idle = 0
        return [records[place] for place in range(len(requests))]

    def _arrive(
        self,
        place: int,
        request: Request,
        live: dict[int, tuple[int, Request, Content]],
        records: dict[int, RequestRecord],
    ) -> None:
        content, seq = self.sequence(request)
        if not self._is_taken(seq):
            records[place] = self._refused(request, seq)
            return
        self.scheduler.add(seq)
        live[seq.index] = (place, request, content)

    def _unblock(
        self, live: dict[int, tuple[int, Request, Content]], records: dict[int, RequestRecord]
    ) -> None:
        """The head of the queue can never start: give it up, and all behind it with it."""
        head = self.scheduler.waiting.head
        self._give_up(head, live[head.index][2])
        blocked = [head] if self.options.abort_stuck else list(self.scheduler.waiting)
        for seq in blocked:
            place, request, _ = live.pop(seq.index)
            records[place] = self._refused(request, seq)

    # -- records ---------------------------------------------------------------------------

    def _finished(self, request: Request, content: Content, seq: Sequence) -> RequestRecord:
        self.num_cut += seq.num_generated_tokens < seq.num_output_tokens
        record = self._record(request, seq)
        ideal_before = self.misses.num_ideal_tokens
        self.last_losses = self._explain(content, seq)
        record.lost_tokens = dict(self.last_losses)
        if not request.prompt.num_known_tokens:
            record.miss_reason = MissReason.NO_CONTENT
        else:
            ideal = self.misses.num_ideal_tokens - ideal_before
            record.miss_reason = main_reason(self.last_losses, ideal)
        return record

    def _explain(self, content: Content, seq: Sequence) -> dict[MissReason, int]:
        saved = tuple(sorted(set(seq.checkpoints)))
        reuse = Reuse(
            num_hit_tokens=seq.num_hit_tokens,
            num_match_tokens=min(seq.num_match_tokens, seq.num_prompt_tokens),
            saved=saved,
            num_dropped_tokens=seq.num_dropped_tokens,
            keeps=self.options.caching,
            num_lookahead_tokens=self.options.lookahead_tokens,
        )
        losses = self.misses.explain(content, seq.num_prompt_tokens, reuse)
        self.misses.remember(content, seq.num_computed_tokens, saved)
        return losses

    def _refused(self, request: Request, seq: Sequence) -> RequestRecord:
        record = self._record(request, seq)
        record.num_match_tokens = record.num_hit_tokens = 0
        record.hit_source, record.miss_reason = HitSource.NONE, MissReason.REFUSED
        return record

    def _record(self, request: Request, seq: Sequence) -> RequestRecord:
        size = self.layout.block_size
        return RequestRecord(
            request_id=request.request_id,
            session_id=request.session_id,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_match_tokens=min(seq.num_match_tokens, seq.num_prompt_tokens),
            num_hit_tokens=seq.num_hit_tokens,
            hit_source=self._hit_source(seq),
            num_evicted_tokens=sum(size for lost in seq.evictions if lost.group == 0),
            num_evicted_states=sum(lost.lost_state for lost in seq.evictions),
            num_checkpoints=len(set(seq.checkpoints)),
            arrival_s=request.arrival_s,
            num_preemptions=seq.num_preemptions,
        )

    def _hit_source(self, seq: Sequence) -> HitSource:
        """Where the request that saved the reused state had it: the last grid position of its
        prompt (less a drafter's drop) counts as the prompt's end."""
        if not seq.num_hit_tokens:
            return HitSource.NONE
        if not self.layout.num_mamba_groups:
            return HitSource.KV_ONLY
        beyond = seq.num_hit_tokens - self._num_prompt_tokens[seq.hit_owner]
        if beyond > 0:
            return HitSource.OUTPUT
        grid = self.layout.unit if self.layout.partial_hits else self.layout.block_size
        at_end = -beyond <= grid * (1 + int(self.options.drops))
        return HitSource.PROMPT_END if at_end else HitSource.PREFIX

    def check(self) -> None:
        """Raise AssertionError if any law is broken; for the end of a run."""
        self.scheduler.cache.check()
        lost = sum(self.misses.lost_tokens.values())
        assert lost == self.misses.num_ideal_tokens - self.misses.num_hit_tokens
