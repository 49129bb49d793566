"""The research cache over a static trie: equal hit by hit, and no content is ever compared.

Once a trace's trie is there, a page is named by the trie node that covers it: two requests have the
same first pages if and only if the same nodes cover them. So where the cache compares spans, this
one compares numbers, and the trie serves as many caches as are replayed over it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from hybridsim.analysis.passes import PathTree
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.cache.radix_tree import Node, RadixTree
from hybridsim.policies.base import EvictionPolicy
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.request import Request
from hybridsim.trie import ROOT


class TriePath:
    """A request's way down the trie; stands where `hybridsim.cache.edge.PathKey` does.

    `nodes`, `ends`: the nodes that hold whole pages, and the tokens that end with each.
    `num_tokens`: of known content.
    """

    __slots__ = ("ends", "nodes", "num_tokens", "page_tokens")

    def __init__(
        self, nodes: Sequence[int], ends: Sequence[int], num_tokens: int, page_tokens: int
    ) -> None:
        self.nodes, self.ends = nodes, ends
        self.num_tokens, self.page_tokens = num_tokens, page_tokens

    def index_at(self, position: int) -> int:
        """Level of the node that covers the page at `position`. O(log levels)."""
        return bisect_right(self.ends, position)

    def page_key_at(self, index: int, position: int) -> Hashable | None:
        """Name of the page at `position`; None if it is incomplete."""
        return None if position + self.page_tokens > self.num_tokens else self.nodes[index]


class TrieEdge:
    """Tokens `[start, end)` of a path; stands where `hybridsim.cache.edge.Edge` does.

    `first`, `last`: levels of the nodes that cover the first and the last page.
    """

    __slots__ = ("end", "first", "last", "path", "start")

    def __init__(self, path: TriePath, start: int, end: int, first: int, last: int) -> None:
        self.path, self.start, self.end = path, start, end
        self.first, self.last = first, last

    def key(self, page_tokens: int) -> Hashable:
        """Name of the first page."""
        return self.path.nodes[self.first]

    def agreement(self, key: TriePath, index: int) -> tuple[int, int | None]:
        """How far `key`, whose level `index` covers `start`, runs along; and its level there."""
        nodes, theirs, last = self.path.nodes, key.nodes, self.last
        if last < len(theirs) and theirs[last] == nodes[last]:
            if self.end <= key.num_tokens:
                return self.end, last + (self.path.ends[last] == self.end)
            return key.num_tokens, None
        level = index + 1
        stop = min(last, len(theirs))
        while level < stop and theirs[level] == nodes[level]:
            level += 1
        return min(self.path.ends[level - 1], key.num_tokens), None

    def cut(self, position: int) -> tuple["TrieEdge", "TrieEdge"]:
        """The parts before and after `position`, which lies strictly inside."""
        ends = self.path.ends
        before = bisect_left(ends, position, self.first)
        after = before + (ends[before] == position)
        return (
            TrieEdge(self.path, self.start, position, self.first, before),
            TrieEdge(self.path, position, self.end, after, self.last),
        )


class _TrieTree(RadixTree):
    """A radix tree whose edges are stretches of trie paths."""

    def append(self, parent: Node, key: Any, index: int, end: int, now: int) -> Node:
        last = bisect_left(key.ends, end, index)
        leaf = Node(TrieEdge(key, parent.end, end, index, last), parent, key.nodes[index], now)  # type: ignore[arg-type]
        assert leaf.key not in parent.children
        parent.children[leaf.key] = leaf
        self.num_nodes += 1
        return leaf


class TrieCache(RadixCache):
    """A research cache that serves the requests of one trie only. Arguments as there.

    paths: of `trie_paths`, by request.
    """

    tree_type = _TrieTree

    def __init__(
        self,
        paths: Mapping[Request, tuple[TriePath, TriePath]],
        memory: Memory,
        page_tokens: int,
        checkpoint: CheckpointPolicy,
        eviction: EvictionPolicy,
        **options: Any,
    ) -> None:
        super().__init__(memory, page_tokens, checkpoint, eviction, **options)
        self._paths = paths

    def _prompt_key(self, request: Request) -> Any:
        return self._paths[request][0]

    def _whole_key(self, request: Request) -> Any:
        return self._paths[request][1]


def trie_paths(
    requests: Sequence[Request], tree: PathTree, page_tokens: int, *, outputs: bool
) -> dict[Request, tuple[TriePath, TriePath]]:
    """For each request the way of its prompt, and of prompt and output. O(nodes on all paths)."""
    parents, starts, ends = tree.parent.tolist(), tree.start.tolist(), tree.end.tolist()
    found = {}
    for request, last in zip(requests, tree.last_node.tolist(), strict=True):
        nodes = []
        while last != ROOT:
            if ends[last] > starts[last]:
                nodes.append(last)
            last = parents[last]
        nodes.reverse()
        tokens = [ends[node] * page_tokens for node in nodes]
        prompt = TriePath(nodes, tokens, request.prompt.num_known_tokens, page_tokens)
        whole = TriePath(nodes, tokens, _num_known(request, outputs), page_tokens)
        found[request] = prompt, whole
    return found


def _num_known(request: Request, outputs: bool) -> int:
    known = request.prompt.num_known_tokens
    if outputs and known == request.num_prompt_tokens:
        known += request.output.num_known_tokens
    return min(known, request.num_final_tokens)
