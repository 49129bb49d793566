"""Full-attention groups, and what every group of layers does with its blocks.

A group owns one table of blocks per running request. It decides nothing about other groups.
"""

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple

from hybridsim.engines.vllm.block_pool import NULL, BlockPool, Key
from hybridsim.engines.vllm.sequence import Sequence

Insert = Callable[[Key, int, int], None]


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


class Demand(NamedTuple):
    """How far a request's blocks must reach: with draft slots, without, and from where.

    is_gate: only asked for the whole prompt at admission; nothing is planned then.
    prefill_end: 0 when every chunk may export a state, else the end of the prefill.
    """

    num_tokens: int
    num_main_tokens: int
    num_computed_tokens: int
    is_gate: bool = False
    prefill_end: int = 0


@dataclass(slots=True)
class Table:
    """Blocks of one request in one group, by position; dropped ones are null.

    num_cached: leading blocks that need no more caching (None before the first was considered).
    partial: (position, block) of a shared block that must be copied before it is written.
    last_state: position of the state that the current chunk reads. num_retired: leading positions
    that were given back. started: blocks were allocated before. checkpoint: (tokens, position) of
    a state that this chunk exports.
    """

    blocks: list[int] = field(default_factory=list)
    num_cached: int | None = None
    partial: tuple[int, int] | None = None
    last_state: int | None = None
    num_retired: int = 0
    started: bool = False
    checkpoint: tuple[int, int] | None = None


class Group:
    """Full attention, and the rules that other groups share.

    use_drop: this group's lookups drop a block for the drafter. keeps_below_fork: then also retain
    the block below a fork. tail_slack_tokens: prompt tokens that a resend cannot match.
    copies: (source, copy) pairs made in this step; both stay referenced until it has run.
    """

    def __init__(self, group_id: int, block_size: int, unit: int, pool: BlockPool) -> None:
        self.group_id = group_id
        self.block_size = block_size
        self.unit = unit
        self.pool = pool
        self.use_drop = False
        self.keeps_below_fork = False
        self.tail_slack_tokens = 1
        self.tables: dict[int, Table] = {}
        self.copies: list[tuple[int, int]] = []

    def table(self, seq: Sequence) -> Table:
        """The request's table, made when missing."""
        table = self.tables.get(seq.index)
        if table is None:
            table = self.tables[seq.index] = Table()
        return table

    def skipped_tokens(self, num_computed_tokens: int) -> int:
        """Leading tokens whose blocks are not needed any more."""
        return 0

    def start_step(self) -> None:
        """A new step begins."""

    # -- asking ----------------------------------------------------------------------------

    def ends_inside_block(self, hits: SequenceOf[int], num_hit_tokens: int) -> bool:
        return bool(hits) and num_hit_tokens % self.block_size != 0

    def num_needed(self, seq: Sequence, demand: Demand, hits: SequenceOf[int]) -> int:
        """Free blocks that the demand takes, evictable hit blocks included."""
        table = self.tables.get(seq.index) or Table()
        required = ceil_div(demand.num_tokens, self.block_size)
        held = len(table.blocks)
        if table.num_cached is not None:
            return max(required - held, 0)
        skipped = self.skipped_tokens(demand.num_computed_tokens) // self.block_size
        new = max(required - max(skipped, len(hits) + held), 0)
        evictable = self.pool.num_evictable(hits[max(0, skipped - held) :])
        return new + evictable + int(self.ends_inside_block(hits, demand.num_computed_tokens))

    # -- acting ----------------------------------------------------------------------------

    def adopt(self, seq: Sequence, hits: SequenceOf[int], num_hit_tokens: int) -> None:
        """Reference the blocks of a hit; a hit that ends inside a block will copy it."""
        table = self.table(seq)
        skipped = max(self.skipped_tokens(num_hit_tokens) // self.block_size, 0)
        kept = list(hits[skipped:]) if skipped else list(hits)
        self.pool.touch(kept)
        table.blocks.extend([NULL] * skipped + kept)
        table.num_cached = len(table.blocks)
        if self.ends_inside_block(kept, num_hit_tokens):
            position = num_hit_tokens // self.block_size
            table.partial = (position, kept[-1])
            table.num_cached = position

    def allocate(self, seq: Sequence, demand: Demand) -> None:
        """Extend the table; the caller has made sure that the blocks are free."""
        table = self.table(seq)
        if table.partial is not None:
            self._copy_on_write(table, self.pool.take(1)[0])
        missing = ceil_div(demand.num_tokens, self.block_size) - len(table.blocks)
        if missing > 0:
            table.blocks.extend(self.pool.take(missing))

    def _copy_on_write(self, table: Table, copy: int) -> None:
        assert table.partial is not None
        position, source = table.partial
        assert table.blocks[position] == source
        table.partial = None
        table.blocks[position] = copy
        self._keep_copy(source, copy, extra_reference=copy)

    def _keep_copy(self, source: int, copy: int, extra_reference: int) -> None:
        self.copies.append((source, copy))
        self.pool.references[extra_reference] += 1

    def take_copies(self) -> list[int]:
        """Blocks kept for this step's copies, to be freed; forgets them."""
        blocks = [block for pair in self.copies for block in pair]
        self.copies.clear()
        return blocks

    def is_retained(self, position: int, boundaries: SequenceOf[int]) -> bool:
        """Whether the block at this position is worth caching."""
        return True

    def commit(self, seq: Sequence, num_tokens: int, boundaries: SequenceOf[int]) -> None:
        """Cache the whole blocks up to `num_tokens`, and the prompt's partial tail.

        boundaries: positions that a replay can resume at.
        """
        self.commit_whole_blocks(seq, num_tokens, boundaries)
        if self.unit != self.block_size:
            self._commit_tail(seq, num_tokens)

    def commit_whole_blocks(
        self, seq: Sequence, num_tokens: int, boundaries: SequenceOf[int]
    ) -> None:
        """Cache whole blocks that are not cached yet and are retained."""
        table = self.table(seq)
        first = table.num_cached or 0
        last = min(num_tokens, seq.num_hashed_tokens) // self.block_size
        if first >= last:
            return
        wanted = self.wanted_boundaries(seq, boundaries)
        for position in range(first, last):
            block = table.blocks[position]
            if block != NULL and self.is_retained(position, wanted):
                end = (position + 1) * self.block_size
                self._insert(seq, block, end, self.pool.replace_keys)
        table.num_cached = last

    def wanted_boundaries(self, seq: Sequence, boundaries: SequenceOf[int]) -> list[int]:
        """Positions to retain: a replay's, the fork's, and below the fork what a drop needs."""
        wanted = list(boundaries)
        if seq.junction:
            wanted.append(seq.junction)
            if self.keeps_below_fork:
                wanted.append(seq.junction - self.block_size)
        return wanted

    def _insert(self, seq: Sequence, block: int, num_tokens: int, how: Insert) -> Key:
        key = Key(self.group_id, seq.key_at(num_tokens))
        how(key, block, num_tokens)
        return key

    def _commit_tail(self, seq: Sequence, num_tokens: int) -> None:
        """Make the block in which the prompt ends reachable from the prompt's last unit."""
        limit = seq.num_prompt_tokens - self.tail_slack_tokens
        tail = min(limit // self.unit * self.unit, seq.num_hashed_tokens)
        if not 0 < tail <= num_tokens or tail % self.block_size == 0:
            return
        blocks = self.table(seq).blocks
        position = tail // self.block_size
        if position < len(blocks) and blocks[position] != NULL:
            self._insert(seq, blocks[position], tail, self.pool.insert_partial)

    def retire(self, seq: Sequence, num_processed_tokens: int) -> None:
        """Give back blocks that are not needed once so many tokens are processed."""
        skipped = self.skipped_tokens(num_processed_tokens)
        if skipped > 0:
            self._retire_below(seq, skipped // self.block_size)

    def _retire_below(self, seq: Sequence, end: int) -> None:
        table = self.tables.get(seq.index)
        if table is None:
            return
        freed = []
        for position in range(min(end, len(table.blocks)) - 1, -1, -1):
            if table.blocks[position] == NULL:
                break
            freed.append(table.blocks[position])
            table.blocks[position] = NULL
        self.pool.free(freed)

    def release(self, seq: Sequence) -> None:
        """Give back all blocks, last ones first, so that they are reused before earlier ones."""
        table = self.tables.pop(seq.index, None)
        if table is not None:
            self.pool.free(reversed(table.blocks))

    def held_blocks(self) -> list[list[int]]:
        """All blocks this group references, one list per owner."""
        return [t.blocks for t in self.tables.values()] + [list(pair) for pair in self.copies]

    def num_held(self, seq: Sequence) -> int:
        """Real blocks of one request."""
        table = self.tables.get(seq.index)
        return sum(block != NULL for block in table.blocks) if table else 0
