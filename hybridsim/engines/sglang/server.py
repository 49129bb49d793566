"""The server: one request after another through lookup, prefill chunks, decode and finish.

The call order is the scheduler's; batches, and requests in flight at once, are not modelled.
"""

from hybridsim.engines.content import Content
from hybridsim.engines.sglang.check import check
from hybridsim.engines.sglang.decision import Death, Decision, EngineDied, Outcome, Usage
from hybridsim.engines.sglang.eviction import Evictor
from hybridsim.engines.sglang.node import Kind
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.pools import Pools
from hybridsim.engines.sglang.run import RequestRun
from hybridsim.engines.sglang.tree import Tree

MAX_RESERVED_OUTPUT_TOKENS = 4096  # of a request's output, what admission sets aside


class SGLangServer:
    """Serves requests and tells what it decided. `dead`: what ended it, if anything did."""

    def __init__(self, options: SGLangOptions) -> None:
        self.options = options
        self.pools = Pools(options)
        self.tree = Tree(options, self.pools)
        self.dead: Death | None = None
        self._evictor = Evictor(self.tree)

    def serve(
        self,
        request_id: str,
        content: Content,
        num_prompt_tokens: int,
        num_output_tokens: int,
        priority: int = 0,
    ) -> Decision:
        """Serve one request to its end.

        content: prompt and output, `num_prompt_tokens + num_output_tokens` tokens at least.
        An output of 0 tokens counts as one token. Changes the tree and the pools.
        """
        decision = Decision(request_id, num_prompt_tokens, max(num_output_tokens, 1))
        if self.dead is not None:
            decision.outcome, decision.death = Outcome.DIED, Death.BEFORE
            return decision
        self._evictor.log = decision.evictions
        run = RequestRun(
            self.options, self.tree, self._evictor, content, num_prompt_tokens, priority, decision
        )
        try:
            self._serve(run, decision)
        except EngineDied as death:
            decision.outcome, decision.death = Outcome.DIED, death.death
            self.dead = death.death
        decision.after = self.usage()
        return decision

    def _serve(self, run: RequestRun, decision: Decision) -> None:
        run.look_up()
        if not self._admits(decision):
            decision.outcome = Outcome.REFUSED
            run.give_up()
            return
        run.take_slots()
        self._prefill(run, decision)
        if decision.num_output_tokens > 1:
            run.hand_over(run.num_prompt_tokens)
            self._decode(run, decision.num_output_tokens)
        run.finish()

    def _admits(self, decision: Decision) -> bool:
        """The scheduler's sum: KV for the rest of the prompt, the output and one page to spare."""
        output = min(decision.num_output_tokens, MAX_RESERVED_OUTPUT_TOKENS)
        rest = decision.num_prompt_tokens - decision.num_hit_tokens
        decision.needed_tokens = rest + output + self.options.page_size
        evictable = self.tree.ledger.evictable(Kind.FULL)
        decision.available_tokens = self.pools.free_kv_tokens + evictable
        fits = decision.needed_tokens < decision.available_tokens
        return fits and self._admits_window(rest, output)

    def _admits_window(self, num_new_tokens: int, num_output_tokens: int) -> bool:
        """The same for sliding-window KV: the first chunk, or a window if that is more.

        Where the pool could never hold a whole chunk the engine takes smaller ones; here the
        request is refused.
        """
        window, page = self.options.sliding_window, self.options.page_size
        if window is None:
            return True
        new = -(-num_new_tokens // page) * page
        chunk = self.options.chunked_prefill_size
        tail = max((min(new, chunk) if chunk > 0 else new) - window, 0)
        needed = tail + min(new + num_output_tokens, window) + page
        available = self.pools.free_swa_tokens + self.tree.ledger.evictable(Kind.SWA)
        return needed < available

    def _prefill(self, run: RequestRun, decision: Decision) -> None:
        """Compute the prompt in chunks; after each but the last the tree gets what is done."""
        end = run.num_prompt_tokens
        while run.row.num_tokens < end:
            start = run.row.num_tokens
            decision.num_chunks += 1
            stop = start + self._chunk_tokens(start, end, decision.num_chunks == 1)
            run.row.extend(stop)
            run.track_prefill(start, stop, decision.num_chunks)
            run.note_peak()
            if stop < end:
                run.hand_over(stop)

    def _chunk_tokens(self, start: int, end: int, is_first: bool) -> int:
        """Tokens of the next chunk. The first is cut to whole pages, later ones are not."""
        size, page, rest = self.options.chunked_prefill_size, self.options.page_size, end - start
        if size <= 0:
            return rest
        if not is_first:
            return min(rest, size)
        if -(-rest // page) * page <= size:
            return rest
        return (start + size // page * page) // page * page - start

    def _decode(self, run: RequestRun, num_output_tokens: int) -> None:
        """All decode steps, leaping from one checkpoint position to the next."""
        last = run.num_prompt_tokens + num_output_tokens - 1
        grid = self.options.decode_grid_tokens
        row = run.row
        while row.num_tokens < last:
            row.decode_to(min(last, (row.num_tokens // grid + 1) * grid), run.tracked_at)
            if self.options.extra_buffer and row.num_tokens % grid == 0:
                run.track_decode(row.num_tokens)

    def usage(self) -> Usage:
        """What the pools and the tree hold now."""
        ledger = self.tree.ledger
        return Usage(
            kv_free=self.pools.free_kv_tokens,
            kv_evictable=ledger.evictable(Kind.FULL),
            kv_cached=ledger.held(Kind.FULL),
            state_free=self.pools.slots.num_free,
            state_evictable=ledger.evictable(Kind.STATE),
            states_cached=ledger.held(Kind.STATE),
        )

    def check(self) -> None:
        """Raise AssertionError if any law of an idle server is broken."""
        if self.dead is None:
            check(self.tree)
