"""A node of the radix tree, and the recency lists that run through the nodes."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from hybridsim.engines.content import Content
from hybridsim.records import HitSource


class Kind(IntEnum):
    """What a node may hold; the order is that in which shortages are served."""

    FULL = 0  # KV of full-attention layers
    SWA = 1  # KV of sliding-window layers
    STATE = 2  # recurrent state at the node's end


class Clock:
    """A logical clock: every reading is one later than the one before."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0

    def tick(self) -> float:
        now = self.now
        self.now += 1.0
        return now


@dataclass(slots=True, eq=False)
class Part:
    """One component's data on one node: held or not, and by how many requests it is locked.

    `older` and `newer` link the nodes of a recency list. `boundary` marks the node at which a
    window lock ended; whoever took that lock remembers the mark.
    """

    held: bool = False
    locks: int = 0
    older: "Node | None" = None
    newer: "Node | None" = None
    boundary: int | None = None


@dataclass(slots=True, eq=False)
class Node:
    """An edge of the tree: the tokens `[start, end)` of `content`, and what is kept of them.

    `last_access` and `created` are clock readings. `path_tokens` and `history_tokens` serve the
    tlru policy: depth of the node, and the deepest the branch has ever reached.
    `source`: where in its request the state was saved.
    `is_leaf`: it may be evicted whole. `rank`: its place among the leaves when last reckoned.
    """

    content: Content
    start: int
    end: int
    parent: "Node | None"
    serial: int
    last_access: float = 0.0
    created: float = 0.0
    hit_count: int = 0
    priority: int = 0
    history_tokens: int = 0
    source: HitSource = HitSource.NONE
    is_leaf: bool = False
    rank: Any = None
    children: dict[Hashable, "Node"] = field(default_factory=dict)
    parts: tuple[Part, Part, Part] = field(default_factory=lambda: (Part(), Part(), Part()))

    @property
    def num_tokens(self) -> int:
        return self.end - self.start

    @property
    def full(self) -> Part:
        return self.parts[Kind.FULL]

    @property
    def swa(self) -> Part:
        return self.parts[Kind.SWA]

    @property
    def state(self) -> Part:
        return self.parts[Kind.STATE]

    @property
    def is_locked(self) -> bool:
        return any(part.locks for part in self.parts)

    def amount(self, kind: Kind) -> int:
        """What the node's part takes of its pool: one state slot, or a KV place a token."""
        if not self.parts[kind].held:
            return 0
        return 1 if kind is Kind.STATE else self.end - self.start


_NOWHERE = Content.of()


class RecencyList:
    """Nodes that hold one kind of data, from least to most recently used."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._ring = Node(_NOWHERE, 0, 0, None, -1)
        end = self._ring.parts[kind]
        end.older = end.newer = self._ring

    def add_newest(self, node: Node) -> None:
        self._link(node, below=self._ring)

    def add_older_than(self, node: Node, reference: Node) -> None:
        """Put `node` right below `reference`."""
        self._link(node, below=reference)

    def _link(self, node: Node, below: Node) -> None:
        kind = self._kind
        above, part = below.parts[kind], node.parts[kind]
        older = above.older
        assert older is not None
        part.newer, part.older = below, older
        older.parts[kind].newer = node
        above.older = node

    def remove(self, node: Node) -> None:
        kind = self._kind
        part = node.parts[kind]
        assert part.older is not None
        assert part.newer is not None
        part.older.parts[kind].newer = part.newer
        part.newer.parts[kind].older = part.older
        part.older = part.newer = None

    def refresh(self, node: Node) -> None:
        self.remove(node)
        self.add_newest(node)

    def holds(self, node: Node) -> bool:
        return node.parts[self._kind].older is not None

    def oldest_unlocked(self) -> Node | None:
        return self.next_unlocked(self._ring)

    def next_unlocked(self, node: Node) -> Node | None:
        """The next more recent node without a lock, None at the most recent end."""
        kind = self._kind
        found = node.parts[kind].newer
        while found is not None and found is not self._ring and found.parts[kind].locks:
            found = found.parts[kind].newer
        return None if found is self._ring else found

    def oldest_first(self) -> list[Node]:
        """All nodes; for checks and displays."""
        nodes: list[Node] = []
        node = self._ring.parts[self._kind].newer
        while node is not None and node is not self._ring:
            nodes.append(node)
            node = node.parts[self._kind].newer
        return nodes
