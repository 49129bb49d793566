"""The optimum for unit blocks without states: Belady's rule with the future known.

The same rules as block_cache.BlockLRU (attention only, prompts only, a partial last block takes a
unit too, nothing pinned, no cap at n - 1 tokens), but what the trace comes back to last goes
first, of one next use the deepest, and a block need not be kept at all (bypass). An ancestor is
needed no later than its descendants, so this keeps the tree closed by itself, and no policy can
hit more blocks than the one that always keeps the nearest ones; nor more tokens, if all blocks
that are ever hit hold equally many.
"""

import heapq
from collections.abc import Sequence

from hybridsim.cache.block_cache import BlockPaths, block_record
from hybridsim.records import RequestRecord
from hybridsim.request import Request


class BlockBelady:
    """Serves exactly the trace it was made from, in order, from `num_blocks` blocks."""

    def __init__(self, requests: Sequence[Request], num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._blocks = BlockPaths()
        self._paths = [self._blocks.path(request) for request in requests]
        self._next_uses = _next_uses(self._paths)
        self._served = 0
        self._resident: dict[int, tuple[int, int]] = {}  # block -> (next use, tokens)
        self._queue: list[tuple[int, int, int]] = []  # (-next use, -depth, block), some outdated

    def serve(self, request: Request) -> RequestRecord:
        """Count the leading blocks that are resident, then keep the nearest of all."""
        path, next_uses = self._paths[self._served], self._next_uses[self._served]
        self._served += 1
        num_hit_tokens = 0
        for block, num_tokens in path:
            if block not in self._resident:
                break
            num_hit_tokens += num_tokens
        for depth, ((block, num_tokens), use) in enumerate(zip(path, next_uses, strict=True)):
            self._resident[block] = (use, num_tokens)
            heapq.heappush(self._queue, (-use, -depth, block))
        return block_record(request, num_hit_tokens, self._evict())

    def _evict(self) -> int:
        num_evicted_tokens = 0
        while len(self._resident) > self.num_blocks:
            use, _, block = heapq.heappop(self._queue)
            if self._resident.get(block, (0, 0))[0] == -use:
                num_evicted_tokens += self._resident.pop(block)[1]
        return num_evicted_tokens

    def check(self) -> None:
        """Raise AssertionError if a law is broken: capacity, and no block without its parent."""
        if len(self._resident) > self.num_blocks:
            raise AssertionError(f"{len(self._resident)} blocks in a cache of {self.num_blocks}")
        parent_of = self._blocks.parents()
        for block in self._resident:
            if parent_of[block] >= 0 and parent_of[block] not in self._resident:
                raise AssertionError(f"block {block} outlived its parent {parent_of[block]}")


def _next_uses(paths: Sequence[list[tuple[int, int]]]) -> list[list[int]]:
    """For each block of each path the index of the next path with it, or the number of paths."""
    next_of: dict[int, int] = {}
    uses: list[list[int]] = []
    for index in reversed(range(len(paths))):
        uses.append([next_of.get(block, len(paths)) for block, _ in paths[index]])
        next_of.update((block, index) for block, _ in paths[index])
    return uses[::-1]
