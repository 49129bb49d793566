"""What hangs on the tree's nodes: KV of full attention and recurrent states, each with its rules.

A component says when a node is a valid end of a hit, what a split, a lock and an insertion do to
its data, and in which order its nodes have been used. It never decides what to evict.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybridsim.engines.content import Content
from hybridsim.engines.sglang.node import Kind, Node, RecencyList
from hybridsim.records import HitSource

if TYPE_CHECKING:
    from hybridsim.engines.sglang.tree import Tree


@dataclass(slots=True, eq=False)
class TreeLock:
    """A request's lock: the node it stands on and the components it does not cover.

    `boundary`: the mark of the node at which the window part of the lock ends, None when that part
    reaches the root.
    """

    node: Node
    skipped: set[Kind] = field(default_factory=set)
    boundary: int | None = None


@dataclass(slots=True)
class Insertion:
    """One sequence on its way into the tree, and what became of it.

    content, end: the tokens `[0, end)` with `end` on a page boundary.
    num_shared: tokens whose KV the tree owns already; the request's own copies start there.
    num_counted: tokens of this request that were counted as used by an earlier insertion.
    source: where in its request the offered state lies.
    window_start: tokens before it have no sliding-window KV any more.
    state_was_there: the offered state is not needed.
    num_released: tokens of the request's own KV that turned out to be copies.
    num_released_window: those of them that have sliding-window KV as well.
    """

    content: Content
    end: int
    num_shared: int = 0
    num_counted: int = 0
    priority: int = 0
    source: HitSource = HitSource.NONE
    window_start: int = 0
    state_was_there: bool = False
    num_released: int = 0
    num_released_window: int = 0
    capped_tail: Node | None = None

    def release(self, start: int, end: int) -> None:
        """The request's own KV for `[start, end)` is not needed: the tree has it."""
        if start < end:
            self.num_released += end - start
            self.num_released_window += max(0, end - max(start, self.window_start))


class Component(ABC):
    """Base of the three components. `outranks`: how late its data goes from an inner node."""

    kind: Kind
    inner_rank: int

    def __init__(self, tree: "Tree") -> None:
        self.tree = tree
        self.recency = RecencyList(self.kind)

    def validator(self) -> Callable[[Node], bool]:
        """A fresh check, to be called with the nodes of one path from the top down."""
        return lambda node: node.parts[self.kind].held

    def refresh_after_match(self, node: Node) -> None:  # noqa: B027
        """A lookup ended with a hit at `node`."""

    def refresh_after_insert(self, node: Node) -> None:  # noqa: B027
        """An insertion ended at `node`."""

    def split(self, parent: Node, child: Node) -> None:  # noqa: B027
        """`parent` was cut off from the head of `child`; share out the data."""

    def claim_overlap(self, node: Node, start: int, insertion: Insertion) -> int:
        """An insertion shares `[start, node.end)`; from where the tree took the insertion's KV."""
        return node.end

    def commit(self, node: Node, is_new: bool, insertion: Insertion) -> None:  # noqa: B027
        """An insertion ends at `node`: attach what it brings."""

    @abstractmethod
    def lock(self, node: Node, lock: TreeLock) -> None:
        """Keep what a request on `node` needs of this component from being evicted."""

    @abstractmethod
    def unlock(self, node: Node, lock: TreeLock) -> None:
        """Take back what `lock` did."""

    def _lock_one(self, node: Node) -> None:
        part = node.parts[self.kind]
        if not part.locks:
            self.tree.ledger.protect(self.kind, node.amount(self.kind))
        part.locks += 1

    def _unlock_one(self, node: Node) -> None:
        part = node.parts[self.kind]
        assert part.locks > 0, f"{self.kind.name} lock released that nobody holds"
        part.locks -= 1
        if not part.locks:
            self.tree.ledger.protect(self.kind, -node.amount(self.kind))
            self.tree.update_leaf(node)


class FullKV(Component):
    """KV of full attention: needed from the root on, so a lock covers the whole path."""

    kind = Kind.FULL
    inner_rank = 2

    def split(self, parent: Node, child: Node) -> None:
        parent.full.held = child.full.held
        parent.full.locks = child.full.locks

    def lock(self, node: Node, lock: TreeLock) -> None:
        for one in self.tree.path_up(node):
            self._lock_one(one)
            self.tree.leaves.discard(one)

    def unlock(self, node: Node, lock: TreeLock) -> None:
        for one in self.tree.path_up(node):
            self._unlock_one(one)


class States(Component):
    """Recurrent states: one at a node's end, of use only to a hit that ends exactly there."""

    kind = Kind.STATE
    inner_rank = 0

    def __init__(self, tree: "Tree", max_states_per_path: int) -> None:
        super().__init__(tree)
        self._max_per_path = max_states_per_path

    def refresh_after_match(self, node: Node) -> None:
        # Only the state that is copied was of use. Refreshing those above it would keep a whole
        # conversation together in the list, and a cold one would then be lost at a stroke.
        if node.state.held:
            self.recency.refresh(node)

    def commit(self, node: Node, is_new: bool, insertion: Insertion) -> None:
        if node.state.held:
            self.recency.refresh(node)
            node.last_access = self.tree.clock.tick()
            insertion.state_was_there = True
            return
        node.state.held, node.source = True, insertion.source
        self.recency.add_newest(node)
        self.tree.ledger.credit(self.kind, node)
        if not is_new:
            node.last_access = self.tree.clock.tick()
        if self._max_per_path >= 0:
            insertion.capped_tail = node

    def cap_path(self, tail: Node) -> None:
        """Drop the shallowest states above `tail` until the path holds no more than allowed.

        Spared are locked ones, forks (several futures need them) and leaves, so the cap is soft.
        """
        holders = [node for node in self.tree.path_up(tail) if node.state.held]
        excess = len(holders) - self._max_per_path
        for node in reversed(holders):
            if excess <= 0 or node is tail:
                break
            if not node.state.locks and len(node.children) == 1 and not node.is_leaf:
                self.tree.drop(self.kind, node)
                excess -= 1

    def lock(self, node: Node, lock: TreeLock) -> None:
        if node is not self.tree.root:
            self._lock_one(node)

    def unlock(self, node: Node, lock: TreeLock) -> None:
        if node is not self.tree.root:
            self._unlock_one(node)
