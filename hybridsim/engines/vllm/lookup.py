"""Longest reusable prefix: attention from the left, then one state from the right.

It changes nothing.
"""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from hybridsim.engines.vllm.block_pool import NULL, BlockPool
from hybridsim.engines.vllm.groups import ceil_div
from hybridsim.engines.vllm.sequence import Sequence


@dataclass(slots=True)
class Hit:
    """What a lookup found.

    blocks: one list a group, null where a state group needs no block. num_hit_tokens: where the
    request would resume. num_attention_tokens: what attention alone would allow, after the
    drafter's drop; num_match_tokens: before it. num_dropped_tokens: what could have been reused
    in addition without that drop. fork: num_attention_tokens when the states fall short of it,
    else 0.
    """

    blocks: list[list[int]] = field(default_factory=list)
    num_hit_tokens: int = 0
    num_attention_tokens: int = 0
    num_match_tokens: int = 0
    num_dropped_tokens: int = 0

    @property
    def fork(self) -> int:
        return self.num_attention_tokens if self.num_attention_tokens > self.num_hit_tokens else 0


@dataclass(frozen=True)
class Lookup:
    """The lookup rule of one engine.

    A hit ends on a block, or on a unit when `partial_hits`. drops_attention: attention matches one
    block (or unit) more than it may use and gives it up. reads_whole_prompt: 0.33.0 lets that extra
    block reach the prompt's end, 0.27.1 stops one token before.
    """

    pool: BlockPool
    attention_groups: tuple[int, ...]
    state_groups: tuple[int, ...]
    block_size: int
    unit: int
    partial_hits: bool
    drops_attention: bool
    reads_whole_prompt: bool = True

    @property
    def grid_tokens(self) -> int:
        return self.unit if self.partial_hits else self.block_size

    def find(self, seq: Sequence) -> Hit:
        """The hit for all tokens of the request but the last."""
        limit = seq.num_tokens - 1
        reach = limit
        if self.drops_attention and self.state_groups:
            longest = seq.num_hashed_tokens if self.reads_whole_prompt else limit
            reach = min(limit + self.grid_tokens, longest)
        attention, num_matched = self._attention(seq, reach)
        num_attention = num_matched
        if self.drops_attention and num_attention:
            num_attention -= self.grid_tokens
        num_hit = num_attention
        states: list[list[int]] = []
        if self.state_groups:
            num_hit, states = self._state(seq, num_attention)
        dropped = 0
        if num_attention < num_matched:
            dropped = self._resumable(seq, min(num_matched, limit)) - num_hit
        kept = ceil_div(num_hit, self.block_size)
        blocks = [a[:kept] for a in attention] + states
        return Hit(blocks, num_hit, num_attention, num_matched, dropped)

    def _resumable(self, seq: Sequence, limit: int) -> int:
        """The deepest position up to `limit` at which attention and states would be found."""
        whole = limit // self.grid_tokens * self.grid_tokens
        return self._state(seq, whole)[0] if self.state_groups else whole

    def _attention(self, seq: Sequence, reach: int) -> tuple[list[list[int]], int]:
        size, groups = self.block_size, self.attention_groups
        found: list[list[int]] = [[] for _ in groups]
        num_tokens = 0
        for end in range(size, min(reach, seq.num_hashed_tokens) + 1, size):
            if not self._append(found, groups, seq.key_at(end)):
                break
            num_tokens = end
        if self.partial_hits:
            last = min(num_tokens + size - self.unit, reach, seq.num_hashed_tokens)
            for end in range(last // self.unit * self.unit, num_tokens, -self.unit):
                if self._append(found, groups, seq.key_at(end)):
                    return found, end
        return found, num_tokens

    def _append(self, found: list[list[int]], groups: SequenceOf[int], content: int) -> bool:
        blocks = [self.pool.find(group, content) for group in groups]
        if None in blocks:
            return False
        for per_group, block in zip(found, blocks, strict=True):
            per_group.append(block)  # type: ignore[arg-type]
        return True

    def _state(self, seq: Sequence, limit: int) -> tuple[int, list[list[int]]]:
        """The last position up to `limit` at which every state group has a saved state."""
        grid, cached = self.grid_tokens, self.pool.cached
        for end in range(limit // grid * grid, 0, -grid):
            content = seq.key_at(end)
            if all(content in cached[group] for group in self.state_groups):
                nulls = [NULL] * (ceil_div(end, self.block_size) - 1)
                found = [self.pool.find(group, content) for group in self.state_groups]
                return end, [[*nulls, block] for block in found if block is not None]
        return 0, [[] for _ in self.state_groups]
