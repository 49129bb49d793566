"""vLLM+: a tree of 32-token blocks, each with KV and a state; leaf LRU."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hybridsim.engines.marconi.served import Served
from hybridsim.engines.marconi.tree import agreement
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.records import HitSource
from hybridsim.request import Spans

BLOCK_TOKENS = 32


class Block:
    """Up to 32 tokens below `parent`, and the state behind them."""

    __slots__ = ("accessed", "children", "key", "num_tokens", "parent", "partials")

    def __init__(self, key: bytes, num_tokens: int, parent: "Block | None", now: int) -> None:
        self.key = key
        self.num_tokens = num_tokens
        self.parent = parent
        self.accessed = now
        self.children: dict[bytes, Block] = {}
        self.partials: dict[bytes, tuple[Block, Spans]] = {}  # last blocks, with their sequences

    def child(self, key: bytes) -> "Block | None":
        return self.partials[key][0] if key in self.partials else self.children.get(key)


@dataclass(frozen=True, slots=True)
class _Walk:
    blocks: list[Block]
    num_partial_tokens: int

    @property
    def num_tokens(self) -> int:
        return sum(block.num_tokens for block in self.blocks)


class BlockCache:
    """A hit is the whole blocks that match, and a sequence's last, partial block if the prompt
    continues right through it. A lookup refreshes the blocks matched; the oldest leaf goes first.

    Room is counted in whole blocks and rounded down: neither the new partial block nor a
    remainder of less than a block makes anything go. The published rules leave this open; this
    reading comes nearest to the published rates (see docs/policies.md).
    """

    def __init__(self, capacity_bytes: int, formulas: MarconiFormulas) -> None:
        self.capacity_bytes = capacity_bytes
        self.formulas = formulas
        self.num_tokens = 0
        self._root = Block(b"", 0, None, 0)
        self._blocks: dict[Block, None] = {}
        self._now = 0

    @property
    def num_states(self) -> int:
        return len(self._blocks)

    def serve(self, prompt: Spans, output: Spans) -> Served:
        walk = self._lookup(prompt)
        num_hit_tokens = walk.num_tokens + walk.num_partial_tokens
        source = HitSource.PREFIX if num_hit_tokens else HitSource.NONE
        whole = prompt.joined(output)
        num_evicted_tokens, num_evicted = self._make_room(whole)
        num_added = self._add(whole)
        return Served(
            num_hit_tokens, num_hit_tokens, source, num_added,
            num_evicted_tokens, num_evicted, num_evicted > 0,
        )  # fmt: skip

    def _lookup(self, spans: Spans) -> _Walk:
        self._now += 1
        walk = self._walk(spans)
        for block in walk.blocks:
            block.accessed = self._now
        return walk

    def _walk(self, spans: Spans) -> _Walk:
        block, blocks = self._root, []
        for _, key, _ in _cut(spans):
            child = block.child(key)
            if child is None:
                break
            blocks.append(child)
            block = child
        start = sum(x.num_tokens for x in blocks)
        lengths = [
            partial.num_tokens
            for partial, owner in block.partials.values()
            if agreement(owner, spans, start, owner.num_known_tokens) == owner.num_known_tokens
        ]
        return _Walk(blocks, max(lengths, default=0))

    def _make_room(self, spans: Spans) -> tuple[int, int]:
        """Evict blocks; returns the tokens and the states that went."""
        walk = self._lookup(spans)
        formulas = self.formulas
        num_new_tokens = spans.num_known_tokens - walk.num_tokens
        needed_bytes = num_new_tokens * formulas.kv_bytes_per_token
        needed_bytes += num_new_tokens // BLOCK_TOKENS * formulas.state_bytes
        held_bytes = self.num_tokens * formulas.kv_bytes_per_token
        held_bytes += len(self._blocks) * formulas.state_bytes
        block_bytes = formulas.state_bytes + BLOCK_TOKENS * formulas.kv_bytes_per_token
        return self._evict(max(0, held_bytes + needed_bytes - self.capacity_bytes) // block_bytes)

    def _evict(self, num_blocks: int) -> tuple[int, int]:
        if not num_blocks:
            return 0, 0
        leaves = [(x.accessed, i, x) for i, x in enumerate(self._blocks) if _is_leaf(x)]
        heapq.heapify(leaves)
        serial, num_tokens, num_evicted = len(self._blocks), 0, 0
        while num_evicted < num_blocks and leaves:
            _, _, victim = heapq.heappop(leaves)
            self._drop(victim)
            num_tokens += victim.num_tokens
            num_evicted += 1
            parent = victim.parent
            if parent is not None and parent is not self._root and _is_leaf(parent):
                serial += 1
                heapq.heappush(leaves, (parent.accessed, serial, parent))
        return num_tokens, num_evicted

    def _drop(self, block: Block) -> None:
        assert block.parent is not None
        for siblings in (block.parent.children, block.parent.partials):
            siblings.pop(block.key, None)
        del self._blocks[block]
        self.num_tokens -= block.num_tokens

    def _add(self, spans: Spans) -> int:
        block, num_before = self._root, len(self._blocks)
        for start, key, end in _cut(spans):
            is_partial = end - start < BLOCK_TOKENS
            child = block.child(key)
            if child is None:
                child = Block(key, end - start, block, self._now)
                if is_partial:
                    block.partials[key] = (child, spans)
                else:
                    block.children[key] = child
                self._blocks[child] = None
                self.num_tokens += end - start
            block = child
        return len(self._blocks) - num_before

    def check(self) -> None:
        """Raise AssertionError if a sum or a link is wrong."""
        found = sum(block.num_tokens for block in self._blocks)
        assert self.num_tokens == found, f"{self.num_tokens} tokens counted, {found} found"
        for block in self._blocks:
            assert block.parent is self._root or block.parent in self._blocks, "an orphan"


def _is_leaf(block: Block) -> bool:
    return not block.children and not block.partials


def _cut(spans: Spans) -> Iterator[tuple[int, bytes, int]]:
    """(start, content, end) of each block of the known tokens, the last one perhaps partial."""
    for start in range(0, spans.num_known_tokens, BLOCK_TOKENS):
        end = min(start + BLOCK_TOKENS, spans.num_known_tokens)
        first = int(np.searchsorted(spans.ends, start, side="right"))
        last = int(np.searchsorted(spans.ends, end, side="left"))
        offset = start - (int(spans.ends[first - 1]) if first else 0)
        inner_ends = spans.ends[first:last] - start  # of the spans that end inside the block
        head = (offset, end - start, last - first)
        yield (
            start,
            repr(head).encode() + spans.ids[first : last + 1].tobytes() + (inner_ends.tobytes()),
            end,
        )
