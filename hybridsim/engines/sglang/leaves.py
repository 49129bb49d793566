"""Which leaf goes first when KV is short: the engine's policies and a queue over the leaves."""

import heapq
from collections.abc import Callable
from typing import Any

from hybridsim.engines.sglang.node import Node
from hybridsim.engines.sglang.options import SGLangOptions

Rank = tuple[Any, ...]
PROTECTED_HITS = 2  # slru: hits from which a node is in the protected segment


def _tlru(options: SGLangOptions) -> Callable[[Node], Rank]:
    """Tail-optimised LRU (Zhang et al., arXiv:2510.15152): tokens that cannot help go first.

    A node is safe to lose when the tokens before it already keep the next prefill of its
    conversation within the threshold. The budget counts the deepest the branch has ever been, so
    that trimming a tail does not make the rest of it look safe as well.
    """
    surplus = options.tlru_next_prompt_estimate - options.tlru_threshold

    def rank(node: Node) -> Rank:
        budget = max(node.history_tokens + surplus, 0)
        return (-1 if node.start >= budget else 0, node.last_access)

    return rank


# The lowest rank is evicted first. Every rank ends with the last access, which settles ties.
_RANKS: dict[str, Callable[[Node], Rank]] = {
    "lru": lambda node: (node.last_access,),
    "mru": lambda node: (-node.last_access,),
    "fifo": lambda node: (node.created, node.last_access),
    "filo": lambda node: (-node.created, node.last_access),
    "lfu": lambda node: (node.hit_count, node.last_access),
    "slru": lambda node: (node.hit_count >= PROTECTED_HITS, node.last_access),
    "priority": lambda node: (node.priority, node.last_access),
}


def rank_of(options: SGLangOptions) -> Callable[[Node], Rank]:
    """The rank function of the configured policy."""
    if options.eviction_policy == "tlru":
        return _tlru(options)
    return _RANKS[options.eviction_policy]


class LeafQueue:
    """The evictable leaves, lowest rank first.

    A heap with stale entries: a leaf's rank is right whenever `update` was called after its last
    change, and entries that no longer tell the truth are dropped when they surface.
    """

    def __init__(self, rank: Callable[[Node], Rank]) -> None:
        self._rank = rank
        self._heap: list[tuple[Rank, int, Node]] = []
        self._leaves: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._leaves)

    def update(self, node: Node, is_leaf: bool) -> None:
        """Say whether `node` may be evicted whole, and reckon its rank anew."""
        if not is_leaf:
            self.discard(node)
            return
        rank = self._rank(node)
        if node.is_leaf and node.rank == rank:
            return
        node.is_leaf, node.rank = True, rank
        self._leaves[node.serial] = node
        heapq.heappush(self._heap, (rank, node.serial, node))
        if len(self._heap) > 64 + 4 * len(self._leaves):
            self._heap = [(leaf.rank, leaf.serial, leaf) for leaf in self._leaves.values()]
            heapq.heapify(self._heap)

    def discard(self, node: Node) -> None:
        if node.is_leaf:
            node.is_leaf, node.rank = False, None
            del self._leaves[node.serial]

    def lowest(self) -> Node | None:
        """The leaf to evict first; it stays in the queue."""
        while self._heap:
            rank, _, node = self._heap[0]
            if node.is_leaf and node.rank is rank:
                return node
            heapq.heappop(self._heap)
        return None
