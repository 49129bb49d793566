"""Groups of recurrent layers in mode align of 0.33.0: states are saved where a chunk ends.

A table holds the running state, the one before it and null blocks in between.
"""

from collections.abc import Sequence as SequenceOf

from hybridsim.engines.vllm.block_pool import NULL, Key
from hybridsim.engines.vllm.groups import Demand, Table, ceil_div
from hybridsim.engines.vllm.sequence import Sequence
from hybridsim.engines.vllm.state_groups import StateGroup


def checkpoint_position(
    num_tokens: int, grid_tokens: int, *, drops: bool, lookahead_tokens: int
) -> int:
    """The last grid position whose state a resend of `num_tokens` tokens can use.

    One token must be left to compute, or as many as a hash looks ahead; a drop costs one grid unit.
    """
    usable = num_tokens if drops else num_tokens - max(1, lookahead_tokens)
    return max(usable // grid_tokens * grid_tokens - (grid_tokens if drops else 0), 0)


def can_export(
    start: int, end: int, position: int, *, unit: int, block_size: int, grid_tokens: int | None
) -> bool:
    """Whether the backend can write the state at `position` while it computes `[start, end)`.

    The chunk must start on the hash grid and span two block columns, so that the state read, the
    exported one and the running one have different columns.
    """
    if grid_tokens is None:
        return False
    spans_columns = ceil_div(end, block_size) - 2 > (start - 1) // block_size
    return (
        start % unit == 0
        and spans_columns
        and start + unit <= position < end
        and (position - start) % grid_tokens == 0
    )


class AlignGroup(StateGroup):
    """Recurrent layers that save a state only where a chunk ends or exports one.

    checkpoint_grid: tokens between positions where a chunk can export a state; None without.
    saves_forks: also cache a state at a fork inside a block.
    """

    checkpoint_grid: int | None = None
    saves_forks = False

    # -- asking ----------------------------------------------------------------------------

    def num_needed(self, seq: Sequence, demand: Demand, hits: SequenceOf[int]) -> int:
        """Free blocks wanted; plans the state that this chunk exports unless asked by the gate."""
        if self.is_unready(hits):
            return self.pool.num_blocks + 1
        table = self.table(seq)
        end = demand.num_main_tokens
        required = ceil_div(end, self.block_size) + self.num_draft_blocks
        new = required - len(hits) - len(table.blocks)
        copies = int(
            self.ends_inside_block(hits, demand.num_computed_tokens) or table.partial is not None
        )
        if copies:
            new = max(new, 0) + 1
        exported = self._exported_position(table, demand)
        if not demand.is_gate:
            column = ceil_div(end, self.block_size) - 2
            table.checkpoint = (exported, column) if exported else None
        if new > 0:
            new = self._limited(new, table, copies, int(exported > 0))
        return new + self.pool.num_evictable(hits)

    def _limited(self, new: int, table: Table, copies: int, exports: int) -> int:
        """Positions in between stay null: one block for the running state, drafts at first."""
        drafts = 0 if table.started else self.num_draft_blocks
        return min(new, 1 + copies + exports + drafts)

    def _exported_position(self, table: Table, demand: Demand) -> int:
        """Where this chunk exports a state, 0 if nowhere."""
        end = demand.num_main_tokens
        if self.checkpoint_grid is None or end < demand.prefill_end:
            return 0
        position = checkpoint_position(
            end, self.retention_grid, drops=self.drops, lookahead_tokens=self.lookahead_tokens
        )
        column = ceil_div(end, self.block_size) - 2
        possible = can_export(
            demand.num_computed_tokens,
            end,
            position,
            unit=self.unit,
            block_size=self.block_size,
            grid_tokens=self.checkpoint_grid,
        )
        if not possible or column < 0 or not self._column_is_free(table, column):
            return 0
        return position

    def _column_is_free(self, table: Table, column: int) -> bool:
        held = len(table.blocks)
        if column >= held or table.blocks[column] == NULL:
            return True
        return table.started and column >= held - self.num_draft_blocks

    # -- acting ----------------------------------------------------------------------------

    def allocate(self, seq: Sequence, demand: Demand) -> None:
        """Place the running state at the chunk's last position, null blocks before it."""
        table = self.table(seq)
        k = self.num_draft_blocks
        required = ceil_div(demand.num_main_tokens, self.block_size) + k
        exports = int(table.checkpoint is not None)
        if required <= len(table.blocks) and table.partial is None and not exports:
            self._mark_started(table)
            return
        self._note_last_state(table)
        null_end = required - k - 1 - exports
        self._extend_with_nulls(table, required - k - 1, null_end)
        missing = max(required - len(table.blocks), 0)
        if table.partial is None:
            table.blocks.extend(self.pool.take(missing))
        else:
            copy, *new = self.pool.take(missing + 1)
            self._copy(table, copy)
            table.blocks.extend(new)
        table.started, table.partial = True, None

    def _mark_started(self, table: Table) -> None:
        table.started = True

    def _note_last_state(self, table: Table) -> None:
        held = len(table.blocks)
        if table.started:
            table.last_state = held - 1 - self.num_draft_blocks
        elif held:
            table.last_state = held - 1

    def _extend_with_nulls(self, table: Table, num_skipped: int, null_end: int) -> None:
        """Null blocks up to the running state; draft blocks of a running request move behind."""
        held = len(table.blocks)
        if held < num_skipped:
            table.blocks.extend([NULL] * (null_end - held))
        if table.started:
            for position in range(held - self.num_draft_blocks, min(held, null_end)):
                table.blocks.append(table.blocks[position])
                table.blocks[position] = NULL

    def _copy(self, table: Table, copy: int) -> None:
        """Keep a shared state: a new request writes into the copy, a running one moves the cached
        entry to it, because its own table must not change."""
        if not table.started:
            self._copy_on_write(table, copy)
            return
        assert table.partial is not None
        source = table.partial[1]
        self.pool.move_keys(source, copy)
        self._keep_copy(source, copy, extra_reference=source)
        key = self.pool.main_key[copy]
        if key is not None:
            self.cached_this_step.add(key.content)

    # -- caching ---------------------------------------------------------------------------

    def commit_tail_state(self, seq: Sequence, num_tokens: int) -> None:
        """Cache the exported state, or the state at the prompt's last unit or at a fork."""
        table = self.table(seq)
        if table.checkpoint is not None:
            self._commit_exported(seq, table)
        elif num_tokens > 0 and num_tokens % self.unit == 0 and self._is_tail(seq, num_tokens):
            self._commit_partial(seq, table, num_tokens)

    def _prompt_position(self, seq: Sequence, grid_tokens: int) -> int:
        return checkpoint_position(
            seq.num_prompt_tokens,
            grid_tokens,
            drops=self.drops,
            lookahead_tokens=self.lookahead_tokens,
        )

    def _is_tail(self, seq: Sequence, num_tokens: int) -> bool:
        if num_tokens == self._prompt_position(seq, self.unit):
            return True
        in_prompt = seq.num_computed_tokens < num_tokens <= seq.num_prompt_tokens
        return self.saves_forks and num_tokens == seq.junction and in_prompt

    def _commit_exported(self, seq: Sequence, table: Table) -> None:
        assert table.checkpoint is not None
        position, column = table.checkpoint
        block = table.blocks[column]
        if not self._is_exported_useful(seq, position):
            # The running state overwrites this block, so nothing in it can be reused.
            self.pool.evict(block)
        elif self.pool.main_key[block] is None or self.pool.key_tokens[block] != position:
            key = self._insert(seq, block, position, self.pool.replace_keys)
            self.cached_this_step.add(key.content)
            self._record(seq, position)

    def _is_exported_useful(self, seq: Sequence, position: int) -> bool:
        if position in (self._prompt_position(seq, self.retention_grid), seq.junction):
            return True
        whole = position % self.block_size == 0
        return whole and self.is_retained(position // self.block_size - 1, ())

    def _commit_partial(self, seq: Sequence, table: Table, num_tokens: int) -> None:
        position = ceil_div(num_tokens, self.block_size) - 1
        block = table.blocks[position] if position < len(table.blocks) else NULL
        if block == NULL:
            return
        if self.pool.main_key[block] is not None and self.pool.key_tokens[block] == num_tokens:
            return
        key: Key = self._insert(seq, block, num_tokens, self.pool.insert_partial)
        self.cached_this_step.add(key.content)
        self._record(seq, num_tokens)
        if num_tokens % self.block_size:
            table.partial, table.num_cached = (position, block), position

    # -- freeing ---------------------------------------------------------------------------

    def retire(self, seq: Sequence, num_processed_tokens: int) -> None:
        """Give back states below the running one and the one that the last chunk read."""
        super().retire(seq, num_processed_tokens)
        table = self.tables.get(seq.index)
        if table is None or table.last_state is None:
            return
        last = table.last_state
        if last < ceil_div(num_processed_tokens, self.block_size) - 1:
            self.pool.free([table.blocks[last]])
            table.blocks[last] = NULL

    def _retire_below(self, seq: Sequence, end: int) -> None:
        table = self.tables.get(seq.index)
        if table is None:
            return
        end = min(end, len(table.blocks))
        if table.num_retired >= end:
            return
        freed = [b for b in reversed(table.blocks[table.num_retired : end]) if b != NULL]
        table.blocks[table.num_retired : end] = [NULL] * (end - table.num_retired)
        self.pool.free(freed)
        table.num_retired = end
