"""KV of sliding-window layers as a component of the tree: kept for the last window only.

A hit needs it for one window before its end. Where it is gone the node stays, as a tombstone of
this component, and a later request that computes those tokens again fills it.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

from hybridsim.engines.sglang.components import Component, Insertion, TreeLock
from hybridsim.engines.sglang.node import Kind, Node

if TYPE_CHECKING:
    from hybridsim.engines.sglang.tree import Tree


class WindowKV(Component):
    """`window_tokens`: what the layers look back on."""

    kind = Kind.SWA
    inner_rank = 1

    def __init__(self, tree: "Tree", window_tokens: int) -> None:
        super().__init__(tree)
        self._window = window_tokens
        self._num_boundaries = 0

    def validator(self) -> Callable[[Node], bool]:
        """A node is a valid end when the window before it is there without a gap."""
        covered: float = inf

        def check(node: Node) -> bool:
            nonlocal covered
            if not node.swa.held:
                covered = 0
                return False
            covered += node.num_tokens
            return covered >= self._window

        return check

    def refresh_after_match(self, node: Node) -> None:
        self._refresh_window(node)

    def refresh_after_insert(self, node: Node) -> None:
        self._refresh_window(node)

    def _refresh_window(self, node: Node) -> None:
        """The nodes of the last window become the most recent ones, deepest first."""
        covered, below = 0, None
        for one in self.tree.path_up(node):
            if covered >= self._window + self.tree.page_size:
                return
            if one.swa.held:
                self.recency.remove(one)
                if below is None:
                    self.recency.add_newest(one)
                else:
                    self.recency.add_older_than(one, below)
                below = one
            covered += one.num_tokens

    def split(self, parent: Node, child: Node) -> None:
        parent.swa.held, parent.swa.locks = child.swa.held, child.swa.locks
        # The mark stands for the older edge of the node, which is the parent's now.
        parent.swa.boundary, child.swa.boundary = child.swa.boundary, None
        if parent.swa.held:
            self.recency.add_older_than(parent, child)

    def lock(self, node: Node, lock: TreeLock) -> None:
        """Lock whole nodes upwards until they cover a window; mark the last one."""
        covered = 0
        for one in self.tree.path_up(node):
            if covered >= self._window:
                return
            self._lock_one(one)
            covered += one.num_tokens
            if covered >= self._window:
                if one.swa.boundary is None:
                    self._num_boundaries += 1
                    one.swa.boundary = self._num_boundaries
                lock.boundary = one.swa.boundary

    def unlock(self, node: Node, lock: TreeLock) -> None:
        for one in self.tree.path_up(node):
            is_last = lock.boundary is not None and one.swa.boundary == lock.boundary
            self._unlock_one(one)
            if is_last:
                return

    def claim_overlap(self, node: Node, start: int, insertion: Insertion) -> int:
        """Fill a tombstone with the insertion's own KV, as far as that is in its window."""
        if insertion.num_shared >= node.end or node.swa.held:
            return node.end
        claimed_from = self._cut_to_window(node, insertion)
        if claimed_from is None:
            return node.end
        self._publish(node)
        return claimed_from

    def commit(self, node: Node, is_new: bool, insertion: Insertion) -> None:
        """A new leaf gets the KV that is in the window, in nodes of one window at most.

        Whoever locks the leaf then keeps one window, and not a long prompt's worth.
        """
        if not is_new or self._cut_to_window(node, insertion) is None:
            return
        page = self.tree.page_size
        tail = -(-self._window // page) * page
        if node.num_tokens > tail:
            self._publish(self.tree.split(node, node.end - tail))
        self._publish(node)

    def _cut_to_window(self, node: Node, insertion: Insertion) -> int | None:
        """Cut off what lies before the window; where the window starts, None if behind `node`."""
        start = max(node.start, insertion.window_start)
        if start >= node.end:
            return None
        if start > node.start:
            self.tree.split(node, start)
        return start

    def _publish(self, node: Node) -> None:
        node.swa.held = True
        self.recency.add_newest(node)
        self.tree.ledger.credit(self.kind, node)
