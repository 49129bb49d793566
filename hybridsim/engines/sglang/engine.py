"""SGLang 0.5.23 behind the common records: requests in, one record and its losses each out."""

from hybridsim.engines.content import Content
from hybridsim.engines.misses import MissLedger, Reuse, main_reason
from hybridsim.engines.sglang.decision import Decision, Outcome
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.server import SGLangServer
from hybridsim.records import HitSource, MissReason, RequestRecord
from hybridsim.request import Request


class SGLangEngine:
    """Serves a trace one request after another (replay mode).

    Output tokens whose content the trace does not know are new content. After a death of the
    engine every request is refused; `death` says what it died of.
    `misses`: tokens lost so far by reason. `last_decision`, `last_losses`: of the latest request.
    """

    name = "sglang-0.5.23"

    def __init__(self, options: SGLangOptions) -> None:
        self.options = options
        self.server = SGLangServer(options)
        self.misses = MissLedger(1 if not options.extra_buffer else options.grid_tokens)
        self.last_decision: Decision | None = None
        self.last_losses: dict[MissReason, int] = {}

    @property
    def death(self) -> str | None:
        """The failed check that ended the engine, None while it lives."""
        return None if self.server.dead is None else str(self.server.dead)

    def serve(self, request: Request) -> RequestRecord:
        """Serve one request to its end and record it."""
        content = Content.of(request.prompt, request.output)
        num_prompt, num_output = request.num_prompt_tokens, max(request.num_output_tokens, 1)
        decision = self.server.serve(
            request.request_id, content, num_prompt, num_output, request.priority
        )
        self.last_decision = decision
        ideal_before = self.misses.num_ideal_tokens
        self.last_losses = self._explain(content, decision)
        record = self._record(request, decision)
        record.lost_tokens = dict(self.last_losses)
        if decision.outcome is not Outcome.SERVED:
            record.miss_reason = MissReason.REFUSED
        elif not request.prompt.num_known_tokens:
            record.miss_reason = MissReason.NO_CONTENT
        else:
            ideal = self.misses.num_ideal_tokens - ideal_before
            record.miss_reason = main_reason(self.last_losses, ideal)
        return record

    def _explain(self, content: Content, decision: Decision) -> dict[MissReason, int]:
        """A request that was not served has reused nothing and leaves nothing."""
        if decision.outcome is not Outcome.SERVED:
            return {}
        saved = tuple(decision.saved)
        hit, match = decision.num_hit_tokens, decision.num_match_tokens
        reuse = Reuse(hit, match, saved, keeps=self.options.radix)
        losses = self.misses.explain(content, decision.num_prompt_tokens, reuse)
        num_computed = decision.num_prompt_tokens + decision.num_output_tokens - 1
        self.misses.remember(content, num_computed, saved)
        return losses

    def _record(self, request: Request, decision: Decision) -> RequestRecord:
        served = decision.outcome is Outcome.SERVED
        return RequestRecord(
            request_id=request.request_id,
            session_id=request.session_id,
            num_prompt_tokens=request.num_prompt_tokens,
            num_output_tokens=request.num_output_tokens,
            num_match_tokens=decision.num_match_tokens if served else 0,
            num_hit_tokens=decision.num_hit_tokens if served else 0,
            hit_source=decision.hit_source if served else HitSource.NONE,
            num_evicted_tokens=decision.num_evicted_tokens,
            num_evicted_states=decision.num_evicted_states,
            num_checkpoints=len(decision.saved),
            arrival_s=request.arrival_s,
        )

    def check(self) -> None:
        """Raise AssertionError if any law is broken; for the end of a run."""
        self.server.check()
        lost = sum(self.misses.lost_tokens.values())
        assert lost == self.misses.num_ideal_tokens - self.misses.num_hit_tokens
