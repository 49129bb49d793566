"""A radix tree of resident KV with recurrent states at some node ends.

It knows content, recency and locks. It does not know bytes, pools, policies or requests.
Every node's KV is resident, and so is its whole path: a match is a walk.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from hybridsim.cache.edge import Edge, PathKey
from hybridsim.records import HitSource
from hybridsim.request import Request


class Node:
    """Tokens `[start, end)` below `parent`, perhaps with a state saved at `end`.

    `kv_locks` counts running requests whose path runs through the node; a parent never has fewer
    than a child. `state_locks` counts those about to copy its state.
    `had_state`: a state was here and was evicted (a tombstone with a past).
    """

    __slots__ = (
        "above", "below", "children", "created", "edge", "had_state", "is_watched", "key",
        "kv_access", "kv_locks", "kv_note", "last_user", "num_state_touches", "num_touches",
        "parent", "state_access", "state_created", "state_locks", "state_note", "state_slot",
        "state_source",
    )  # fmt: skip

    def __init__(self, edge: Edge, parent: "Node | None", key: Hashable, now: int) -> None:
        self.edge = edge
        self.parent = parent
        self.key = key
        self.children: dict[Hashable, Node] = {}
        self.kv_locks = 0
        self.kv_access = now
        self.created = now
        self.num_touches = 1
        self.kv_note: Any = None  # the eviction policy's own, as is state_note
        self.last_user: Request | None = None
        self.state_slot: int | None = None
        self.state_source: str = HitSource.NONE
        self.state_locks = 0
        self.state_access = now
        self.state_created = now
        self.num_state_touches = 0
        self.state_note: Any = None
        self.had_state = False
        self.above: Node | None = None  # these three are cache.gaps' own
        self.below: dict[Node, None] | None = None
        self.is_watched = False

    @property
    def start(self) -> int:
        return self.edge.start

    @property
    def end(self) -> int:
        return self.edge.end

    @property
    def num_tokens(self) -> int:
        return self.edge.end - self.edge.start

    @property
    def num_children(self) -> int:
        return len(self.children)

    @property
    def has_state(self) -> bool:
        return self.state_slot is not None

    @property
    def state_gap_tokens(self) -> int:
        """Tokens from the nearest kept state above to `end`. O(1) if linked, else O(depth)."""
        if self.above is not None:
            return self.end - self.above.end
        above = self.parent
        while above is not None and above.parent is not None and above.state_slot is None:
            above = above.parent
        return self.end - (above.end if above is not None else 0)

    def path(self) -> "Iterator[Node]":
        """This node and its ancestors, deepest first, without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


@dataclass(frozen=True, slots=True)
class Walk:
    """How far a sequence runs along the tree.

    `nodes` are matched whole, from the top; `partial` is a child of the last of them, matched up
    to `num_tokens`, which lies strictly inside it. `index` is the row of the key at `num_tokens`.
    """

    nodes: tuple[Node, ...]
    partial: Node | None
    num_tokens: int
    index: int

    def deepest_state(self, limit: int) -> tuple[Node | None, int]:
        """The deepest node up to `limit` with a state; the deepest end that lost one since."""
        once = 0
        for node in reversed(self.nodes):
            if node.end > limit:
                continue
            if node.has_state:
                return node, once
            if node.had_state:
                once = max(once, node.end)
        return None, once


class RadixTree:
    """Insertion, splitting and removal. All positions are multiples of `page_tokens`."""

    def __init__(self, page_tokens: int) -> None:
        self.page_tokens = page_tokens
        self.root = Node(Edge(b"", None, 0, 0, 0), None, None, 0)
        self.num_nodes = 0

    def walk(self, key: PathKey, start: Node | None = None) -> Walk:
        """Follow `key` from `start` (default: the root). Changes nothing. O(path nodes + rows)."""
        node = start or self.root
        position = node.end
        index = key.index_at(position) if position else 0
        nodes: list[Node] = []
        while (page := key.page_key_at(index, position)) is not None:
            child = node.children.get(page)
            if child is None:
                break
            agreed, next_index = child.edge.agreement(key, index)
            agreed -= agreed % self.page_tokens
            index = key.index_at(agreed) if next_index is None else next_index
            position = agreed
            if agreed < child.end:
                return Walk(tuple(nodes), child, position, index)
            nodes.append(child)
            node = child
        return Walk(tuple(nodes), None, position, index)

    def split(self, node: Node, position: int, now: int) -> Node:
        """Cut `node` in two; returns the new parent, which has no state. `node` keeps the tail."""
        assert node.parent is not None
        head_edge, tail_edge = node.edge.cut(position)
        head = Node(head_edge, node.parent, node.key, now)
        head.kv_locks = node.kv_locks
        head.kv_access, head.created = node.kv_access, node.created
        head.num_touches, head.kv_note = node.num_touches, node.kv_note
        head.last_user = node.last_user
        node.parent.children[node.key] = head
        node.edge = tail_edge
        node.parent = head
        node.key = tail_edge.key(self.page_tokens)
        head.children[node.key] = node
        self.num_nodes += 1
        return head

    def append(self, parent: Node, key: PathKey, index: int, end: int, now: int) -> Node:
        """A new leaf below `parent` with the tokens `[parent.end, end)` of `key`."""
        edge = Edge.of(key, index, parent.end, end)
        page = key.page_key_at(index, parent.end)
        assert page is not None
        assert page not in parent.children
        leaf = Node(edge, parent, page, now)
        parent.children[page] = leaf
        self.num_nodes += 1
        return leaf

    def trim(self, leaf: Node, position: int) -> None:
        """Forget the leaf's tokens from `position` on; forget the leaf if none are left."""
        assert leaf.parent is not None
        assert not leaf.children
        if position > leaf.start:
            leaf.edge = leaf.edge.cut(position)[0]
            return
        del leaf.parent.children[leaf.key]
        self.num_nodes -= 1

    def nodes(self) -> Iterator[Node]:
        """Every node but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
