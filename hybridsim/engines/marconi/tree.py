"""Marconi's radix tree: every node ends in a checkpoint. Knows content and time, not policies."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from hybridsim.records import HitSource
from hybridsim.request import Spans


class Node:
    """Tokens `[start, end)` of `owner`, whose tokens before `start` are the path to the node."""

    __slots__ = ("accessed", "children", "end", "gain", "owner", "parent", "source", "start")

    def __init__(
        self, owner: Spans, start: int, end: int, parent: "Node | None", source: HitSource, now: int
    ) -> None:
        self.owner = owner
        self.start = start
        self.end = end
        self.parent = parent
        self.source = source
        self.accessed = now
        self.children: dict[Hashable, Node] = {}
        self.gain: tuple[int, int, float] | None = None  # (start, end, FLOPs a byte)

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Walk:
    """`nodes` are matched whole; `partial` is a child of the last, matched up to `num_tokens`."""

    nodes: tuple[Node, ...]
    partial: Node | None
    num_tokens: int

    @property
    def num_whole_tokens(self) -> int:
        """Tokens on edges matched to their end: those that Marconi counts as a hit."""
        return self.nodes[-1].end if self.nodes else 0

    @property
    def splits(self) -> bool:
        return self.partial is not None


class Tree:
    """Insertion, eviction of nodes, and sums of what is held."""

    def __init__(self) -> None:
        self.root = Node(Spans.unknown(0), 0, 0, None, HitSource.NONE, 0)
        self.num_nodes = 0
        self.num_tokens = 0

    def walk(self, spans: Spans) -> Walk:
        """Follow `spans` as far as the tree goes. Changes nothing."""
        node, position = self.root, 0
        nodes: list[Node] = []
        while position < spans.num_known_tokens:
            child = node.children.get(token_at(spans, position))
            if child is None:
                break
            position = agreement(child.owner, spans, position, child.end)
            if position < child.end:
                return Walk(tuple(nodes), child, position)
            nodes.append(child)
            node = child
        return Walk(tuple(nodes), None, position)

    def insert(self, spans: Spans, now: int) -> int:
        """Add the whole known sequence; new nodes are of `now`. Returns how many were added."""
        walk = self.walk(spans)
        num_before = self.num_nodes
        node = walk.nodes[-1] if walk.nodes else self.root
        if walk.partial is not None:
            node = self._split(walk.partial, walk.num_tokens, now)
        if node.end < spans.num_known_tokens:
            end = spans.num_known_tokens
            leaf = Node(spans, node.end, end, node, HitSource.OUTPUT, now)
            node.children[token_at(spans, node.end)] = leaf
            self.num_nodes += 1
            self.num_tokens += leaf.num_tokens
        return self.num_nodes - num_before

    def _split(self, node: Node, position: int, now: int) -> Node:
        """Cut `node`; returns the new upper part, which takes its place among its siblings."""
        assert node.parent is not None
        upper = Node(node.owner, node.start, position, node.parent, HitSource.PREFIX, now)
        node.parent.children[token_at(node.owner, node.start)] = upper
        node.start, node.parent = position, upper
        upper.children[token_at(node.owner, position)] = node
        self.num_nodes += 1
        return upper

    def remove_leaf(self, leaf: Node) -> None:
        assert leaf.parent is not None
        assert not leaf.children
        del leaf.parent.children[token_at(leaf.owner, leaf.start)]
        self.num_nodes -= 1
        self.num_tokens -= leaf.num_tokens

    def merge_into_child(self, node: Node) -> None:
        """Drop the state of a node with one child: the child takes on its tokens, the later time
        of both and its place among its siblings.
        """
        assert node.parent is not None
        (child,) = node.children.values()
        node.parent.children[token_at(node.owner, node.start)] = child
        child.start, child.parent = node.start, node.parent
        child.accessed = max(child.accessed, node.accessed)
        self.num_nodes -= 1

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, in pre-order, siblings in the order of their arrival."""
        stack = [iter(self.root.children.values())]
        while stack:
            node = next(stack[-1], None)
            if node is None:
                stack.pop()
            else:
                yield node
                stack.append(iter(node.children.values()))

    def check(self) -> None:
        """Raise AssertionError if a sum or a link is wrong."""
        nodes = list(self.nodes())
        assert self.num_nodes == len(nodes), f"{self.num_nodes} nodes counted, {len(nodes)} found"
        found = sum(node.num_tokens for node in nodes)
        assert self.num_tokens == found, f"{self.num_tokens} tokens counted, {found} found"
        for node in nodes:
            assert node.parent is not None
            assert node.start == node.parent.end < node.end, (
                "an edge must start where its parent ends"
            )
            key = token_at(node.owner, node.start)
            assert node.parent.children.get(key) is node, "a child must be filed under its token"


def token_at(spans: Spans, position: int) -> Hashable:
    """Names the token at `position`, given all tokens before it."""
    row = int(np.searchsorted(spans.ends, position, side="right"))
    offset = position - (int(spans.ends[row - 1]) if row else 0)
    content_id = int(spans.ids[row])
    return (content_id, offset) if offset else content_id


def agreement(ours: Spans, theirs: Spans, start: int, limit: int) -> int:
    """Position up to which both hold the same tokens, at most `limit`; they agree up to `start`."""
    row = int(np.searchsorted(ours.ends, start, side="right"))
    last = min(int(np.searchsorted(ours.ends, limit, side="left")) + 1, len(ours), len(theirs))
    differs = ours.ids[row:last] != theirs.ids[row:last]
    differs |= ours.ends[row:last] != theirs.ends[row:last]
    if not differs.any():
        return min(limit, int(theirs.ends[last - 1])) if last > row else start
    row += int(differs.argmax())
    if ours.ids[row] == theirs.ids[row]:
        return int(min(ours.ends[row], theirs.ends[row], limit))
    return max(start, int(ours.ends[row - 1]) if row else 0)
