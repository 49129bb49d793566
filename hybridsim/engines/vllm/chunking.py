"""Where a prefill chunk must end so that its state can be reused. It looks at no memory."""

from dataclasses import dataclass

from hybridsim.engines.vllm.align_group import can_export, checkpoint_position
from hybridsim.engines.vllm.layout import Layout
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.engines.vllm.sequence import Sequence


@dataclass(frozen=True)
class ChunkRule:
    """Mode align cuts chunks at block boundaries, at the last cacheable position and at forks.

    aligns: whether chunks are cut at all. block_size, unit: tokens of a block and between hashes.
    partial_hits: the prompt's last unit is cacheable too. max_chunk_tokens: most tokens a chunk can
    ever have. checkpoint_grid: see `Layout`. counts_last_token: 0.27.1 caches the last block of an
    aligned prompt, which a resend cannot use. saves_forks: a fork inside a block is cacheable.
    junction: stop at forks at all.
    drafter_tokens: prompt tokens that the drafter reads beyond a chunk.
    """

    aligns: bool
    block_size: int
    unit: int
    partial_hits: bool
    max_chunk_tokens: int
    drops: bool = False
    lookahead_tokens: int = 0
    checkpoint_grid: int | None = None
    counts_last_token: bool = False
    saves_forks: bool = False
    junction: bool = True
    drafter_tokens: int = 0

    def cut(self, seq: Sequence, start: int, num_new_tokens: int) -> int:
        """Tokens of the chunk that starts at `start` and could have `num_new_tokens`; 0 for none.

        Decode steps (start at or past the end of the prefill) are not cut.
        """
        prefill_end, size = seq.prefill_end, self.block_size
        if not self.aligns or start >= prefill_end:
            return num_new_tokens
        end = start + num_new_tokens
        exports = end >= prefill_end and self._exports(start, end, prefill_end)
        if end < prefill_end:
            aligned = end // size * size
            if aligned > start or size <= self.max_chunk_tokens:
                end = aligned
        stops = [self._fork_stop(seq, start, end)]
        last = 0
        if not exports:
            last = self._last_position(seq.num_tokens, size)
            stops += [last, (start // size + 1) * size if start % size else 0]
        if self.partial_hits and not exports:
            tail = self._last_position(seq.num_prompt_tokens, self.unit)
            stops.append(tail if last < tail < seq.num_prompt_tokens else 0)
        return max(min((s for s in stops if start < s < end), default=end) - start, 0)

    def leave_lookahead(self, seq: Sequence, start: int, num_new_tokens: int) -> int:
        """Never end a chunk so close to the prompt's end that the drafter lacks its next tokens."""
        rest = seq.num_tokens - start - num_new_tokens
        if 0 < rest < self.drafter_tokens:
            num_new_tokens -= self.drafter_tokens - rest
        return max(num_new_tokens, 0)

    def _last_position(self, num_tokens: int, grid_tokens: int) -> int:
        if self.counts_last_token:
            drop = grid_tokens if self.drops and grid_tokens == self.block_size else 0
            return max(num_tokens // grid_tokens * grid_tokens - drop, 0)
        return checkpoint_position(
            num_tokens, grid_tokens, drops=self.drops, lookahead_tokens=self.lookahead_tokens
        )

    def _exports(self, start: int, end: int, prefill_end: int) -> bool:
        """Whether the backend saves the prompt's checkpoint inside this chunk."""
        grid = self.unit if self.partial_hits else self.block_size
        return can_export(
            start,
            end,
            self._last_position(prefill_end, grid),
            unit=self.unit,
            block_size=self.block_size,
            grid_tokens=self.checkpoint_grid,
        )

    def _fork_stop(self, seq: Sequence, start: int, end: int) -> int:
        fork = seq.junction
        if not self.junction or not start < fork < end:
            return 0
        if self.saves_forks and fork <= seq.num_prompt_tokens:
            return fork
        return start + (fork - start) // self.block_size * self.block_size


def chunk_rule(layout: Layout, options: VLLMOptions, *, saves_forks: bool) -> ChunkRule:
    """The rule of one engine."""
    old = options.version == "0.27.1"
    threshold = options.long_prefill_token_threshold or options.max_num_batched_tokens
    return ChunkRule(
        aligns=options.mamba_mode == "align" and layout.num_mamba_groups > 0,
        block_size=layout.block_size,
        unit=layout.unit,
        partial_hits=layout.partial_hits,
        max_chunk_tokens=min(threshold, options.max_num_batched_tokens),
        drops=options.drops,
        lookahead_tokens=options.lookahead_tokens,
        checkpoint_grid=layout.checkpoint_grid,
        counts_last_token=old,
        saves_forks=saves_forks,
        junction=options.junction,
        drafter_tokens=0 if old else options.prefill_lookahead_tokens,
    )
