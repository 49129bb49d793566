"""Block LRU for cross-checks with other simulators: attention only, prompts only, unit blocks.

A block is one content id of the trace and takes one unit, also a partial last one. Every request
touches its whole path with the root most recent; nothing is pinned, and all of a prompt may hit.
These are the rules of kvcache-simulator 0.1.3, and of Mattson's stack in its textbook form.
"""

from collections import OrderedDict

from hybridsim.records import HitSource, RequestRecord
from hybridsim.request import Request


class BlockPaths:
    """Numbers blocks: a block is named by all content up to its end."""

    def __init__(self) -> None:
        self._block_of: dict[tuple[int, int, int], int] = {}

    def path(self, request: Request) -> list[tuple[int, int]]:
        """The prompt's blocks with their tokens, from the first on."""
        path = []
        parent, start = -1, 0
        for content_id, end in zip(
            request.prompt.ids.tolist(), request.prompt.ends.tolist(), strict=True
        ):
            name = (parent, content_id, end)
            parent = self._block_of.setdefault(name, len(self._block_of))
            path.append((parent, end - start))
            start = end
        return path

    def parents(self) -> dict[int, int]:
        """Block -> the block before it, -1 for a first one."""
        return {block: name[0] for name, block in self._block_of.items()}


def block_record(request: Request, num_hit_tokens: int, num_evicted_tokens: int) -> RequestRecord:
    """The row of a request served from blocks: what matches is a hit."""
    return RequestRecord(
        request.request_id,
        request.session_id,
        request.num_prompt_tokens,
        request.num_output_tokens,
        num_match_tokens=num_hit_tokens,
        num_hit_tokens=num_hit_tokens,
        hit_source=HitSource.KV_ONLY if num_hit_tokens else HitSource.NONE,
        num_evicted_tokens=num_evicted_tokens,
    )


class BlockLRU:
    """Serves one request after the other from `num_blocks` blocks (None: unlimited)."""

    def __init__(self, num_blocks: int | None) -> None:
        self.num_blocks = num_blocks
        self.peak_blocks = 0
        self._resident: OrderedDict[int, int] = OrderedDict()  # block -> tokens, oldest first
        self._paths = BlockPaths()

    def serve(self, request: Request) -> RequestRecord:
        """Count the leading blocks that are resident, then make the whole path most recent."""
        path = self._paths.path(request)
        num_hit_blocks = next(
            (i for i, (block, _) in enumerate(path) if block not in self._resident), len(path)
        )
        num_hit_tokens = sum(num_tokens for _, num_tokens in path[:num_hit_blocks])
        return block_record(request, num_hit_tokens, self._touch(path))

    def _touch(self, path: list[tuple[int, int]]) -> int:
        """Deepest first, so that the root ends up most recent. Returns the tokens evicted."""
        for block, num_tokens in reversed(path):
            self._resident[block] = num_tokens
            self._resident.move_to_end(block)
        num_evicted_tokens = 0
        while self.num_blocks is not None and len(self._resident) > self.num_blocks:
            num_evicted_tokens += self._resident.popitem(last=False)[1]
        self.peak_blocks = max(self.peak_blocks, len(self._resident))
        return num_evicted_tokens

    def check(self) -> None:
        """Raise AssertionError if a law is broken: capacity, and no block without its parent."""
        if self.num_blocks is not None and len(self._resident) > self.num_blocks:
            raise AssertionError(f"{len(self._resident)} blocks in a cache of {self.num_blocks}")
        parent_of = self._paths.parents()
        for block in self._resident:
            if parent_of[block] >= 0 and parent_of[block] not in self._resident:
                raise AssertionError(f"block {block} outlived its parent {parent_of[block]}")
