"""Mode align as release 0.27.1 had it: where it differs from 0.33.0."""

from hybridsim.engines.vllm.align_group import AlignGroup
from hybridsim.engines.vllm.block_pool import NULL
from hybridsim.engines.vllm.groups import Group, Table
from hybridsim.engines.vllm.sequence import Sequence


class AlignGroup027(AlignGroup):
    """No exported states; a tail may end at the last token; null gaps stop retiring."""

    def _limited(self, new: int, table: Table, copies: int, exports: int) -> int:
        """The exact number, even where fewer positions are missing."""
        return 1 + copies + (0 if table.started else self.num_draft_blocks)

    def _mark_started(self, table: Table) -> None:
        """A step that allocates nothing leaves the request as it was."""

    def commit_tail_state(self, seq: Sequence, num_tokens: int) -> None:
        """Cache the state at the prompt's last unit when a chunk ends there inside a block."""
        if self.unit == self.block_size or num_tokens % self.block_size == 0:
            return
        if num_tokens != seq.num_prompt_tokens // self.unit * self.unit:
            return
        table = self.table(seq)
        position = num_tokens // self.block_size
        block = table.blocks[position] if position < len(table.blocks) else NULL
        if block == NULL:
            return
        key = self._insert(seq, block, num_tokens, self.pool.insert_partial)
        self.cached_this_step.add(key.content)
        self._record(seq, num_tokens)
        table.partial, table.num_cached = (position, block), position

    def _retire_below(self, seq: Sequence, end: int) -> None:
        """From the end backward, up to the first null block."""
        Group._retire_below(self, seq, end)
