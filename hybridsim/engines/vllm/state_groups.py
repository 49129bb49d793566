"""Groups of recurrent layers in their plain form: one state a block, a block for every position."""

from collections.abc import Sequence as SequenceOf

from hybridsim.engines.vllm.block_pool import BlockPool
from hybridsim.engines.vllm.groups import Demand, Group
from hybridsim.engines.vllm.sequence import Sequence


class StateGroup(Group):
    """Recurrent layers with one block for every position (mode all) or one in all (mode none).

    retention: see `VLLMOptions`; boundaries count when rounded down to `retention_grid` tokens.
    records: whether this group writes saved positions into the request's report.
    """

    def __init__(
        self,
        group_id: int,
        block_size: int,
        unit: int,
        pool: BlockPool,
        *,
        num_draft_blocks: int,
        retention: int | None,
        retention_grid: int,
    ) -> None:
        super().__init__(group_id, block_size, unit, pool)
        self.num_draft_blocks = num_draft_blocks
        self.retention = retention
        self.retention_grid = retention_grid
        self.drops = False
        self.lookahead_tokens = 0
        self.records = False
        self.cached_this_step: set[int] = set()

    def start_step(self) -> None:
        """States cached in the last step exist by now, so that others may read them."""
        self.cached_this_step.clear()

    def skipped_tokens(self, num_computed_tokens: int) -> int:
        """Only the state of the last computed token is needed."""
        return num_computed_tokens - 1

    def is_unready(self, hits: SequenceOf[int]) -> bool:
        """Whether the hit state is only being computed in this very step."""
        if not hits:
            return False
        key = self.pool.main_key[hits[-1]]
        return (
            key is not None and key.group == self.group_id and key.content in self.cached_this_step
        )

    def num_needed(self, seq: Sequence, demand: Demand, hits: SequenceOf[int]) -> int:
        """Free blocks wanted; more than the pool has when the hit state is not ready yet."""
        if self.is_unready(hits):
            return self.pool.num_blocks + 1
        return super().num_needed(seq, self._with_drafts(demand), hits)

    def allocate(self, seq: Sequence, demand: Demand) -> None:
        super().allocate(seq, self._with_drafts(demand))

    def _with_drafts(self, demand: Demand) -> Demand:
        drafts = self.num_draft_blocks * self.block_size
        return demand._replace(num_tokens=demand.num_tokens + drafts) if drafts else demand

    def is_retained(self, position: int, boundaries: SequenceOf[int]) -> bool:
        """Dense (None): all; 0: only boundaries; N: also the last block before multiples of N."""
        if self.retention is None:
            return True
        per_segment = self.retention // self.block_size
        if self.retention and (per_segment <= 1 or (position + 1) % per_segment == 0):
            return True
        grid = self.retention_grid
        return any(b // grid * grid // self.block_size - 1 == position for b in boundaries)

    def commit(self, seq: Sequence, num_tokens: int, boundaries: SequenceOf[int]) -> None:
        """Cache states up to `num_tokens`; they become readable in the next step."""
        table = self.table(seq)
        first = table.num_cached or 0
        self.commit_whole_blocks(seq, num_tokens, boundaries)
        last = table.num_cached or 0
        self.commit_tail_state(seq, num_tokens)
        for position in range(first, last):
            key = self.pool.main_key[table.blocks[position]]
            if key is not None:
                self.cached_this_step.add(key.content)
                self._record(seq, self.pool.key_tokens[table.blocks[position]])

    def commit_tail_state(self, seq: Sequence, num_tokens: int) -> None:
        """Cache a state inside a block; the plain form has none."""

    def _record(self, seq: Sequence, num_tokens: int) -> None:
        if self.records:
            seq.checkpoints.append(num_tokens)
