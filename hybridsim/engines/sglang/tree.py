"""The radix tree of all components: lookups that split nodes, locks, leaves.

It knows neither requests nor the order in which memory runs short.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hybridsim.engines.content import Content
from hybridsim.engines.sglang.components import (
    Component,
    FullKV,
    States,
    TreeLock,
)
from hybridsim.engines.sglang.leaves import LeafQueue, rank_of
from hybridsim.engines.sglang.ledger import Ledger
from hybridsim.engines.sglang.node import Clock, Kind, Node
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.pools import Pools
from hybridsim.engines.sglang.window import WindowKV

AGE_STEP = 1e-5  # by which each node on a matched path is older than the one below it


@dataclass(frozen=True, slots=True)
class TreeMatch:
    """num_match_tokens: KV found, whole pages. `node`: the deepest usable one, or the root."""

    num_match_tokens: int
    node: Node

    @property
    def num_hit_tokens(self) -> int:
        return self.node.end


class Tree:
    """One tree over one set of pools."""

    def __init__(self, options: SGLangOptions, pools: Pools) -> None:
        self.page_size = options.page_size
        self.pools = pools
        self.clock = Clock()
        self.leaves = LeafQueue(rank_of(options))
        self._num_nodes = 0
        self.root = self.new_node(Content.of(), 0, 0, None)
        self.root.full.held = True
        self.ledger = Ledger()
        self.states = States(self, options.max_states_per_path)
        window = options.sliding_window
        windows = [] if window is None else [WindowKV(self, window)]
        self.components: list[Component] = [FullKV(self), *windows, self.states]
        self.tracks_history = options.eviction_policy == "tlru"

    def component(self, kind: Kind) -> Component:
        return next(one for one in self.components if one.kind is kind)

    # Lookup

    def match(self, content: Content, limit: int) -> TreeMatch:
        """The longest path of `content` within its first `limit` tokens.

        Splits the node in which the path ends and makes it, and whatever is reused, recent.
        """
        stop = limit // self.page_size * self.page_size
        if stop <= 0:
            return TreeMatch(0, self.root)
        checks = [component.validator() for component in self.components]
        best, offset = self.root, 0
        for node in self._descend(content, stop):
            # Every check must see every node: some of them count what they have seen.
            if all([check(node) for check in checks]):
                best = node
            offset = node.end
        for component in self.components:
            component.refresh_after_match(best)
        self._make_recent(best)
        return TreeMatch(offset, best)

    def _descend(self, content: Content, stop: int) -> Iterator[Node]:
        """The nodes of `content[:stop]` from the top down; the last one is cut to fit."""
        node = self.root
        while node.end < stop:
            child = self.child_of(node, content)
            if child is None:
                return
            end = self.agreement(content, child, stop)
            node = child if end == child.end else self.split(child, end)
            yield node
            if node is not child:
                return

    def child_of(self, node: Node, content: Content) -> Node | None:
        """The child along `content`, if there is one."""
        return node.children.get(content.page_key(node.end, self.page_size))

    def agreement(self, content: Content, child: Node, stop: int) -> int:
        """How far `content[:stop]` goes along with `child`, in whole pages."""
        end = content.common_end(child.content, child.start, min(stop, child.end))
        return end // self.page_size * self.page_size

    def _make_recent(self, node: Node) -> None:
        now = self.clock.tick()
        one: Node | None = node
        while one is not None:
            one.last_access = now
            if one.is_leaf:
                self.leaves.update(one, True)
            now -= AGE_STEP
            one = one.parent

    # Structure

    def new_node(self, content: Content, start: int, end: int, parent: Node | None) -> Node:
        node = Node(content, start, end, parent, self._num_nodes)
        self._num_nodes += 1
        node.last_access, node.created = self.clock.tick(), self.clock.tick()
        return node

    def split(self, child: Node, at: int) -> Node:
        """Cut the tokens before `at` off `child`; they become its new parent, without a state."""
        above = child.parent
        assert above is not None
        parent = self.new_node(child.content, child.start, at, above)
        parent.priority, parent.hit_count = child.priority, child.hit_count
        parent.created, parent.history_tokens = child.created, child.history_tokens
        above.children[child.content.page_key(child.start, self.page_size)] = parent
        child.parent, child.start = parent, at
        parent.children[child.content.page_key(at, self.page_size)] = child
        for component in self.components:
            component.split(parent, child)
        child.last_access = self.clock.tick()
        self.update_leaf(parent)
        self.update_leaf(child)
        return parent

    def path_up(self, node: Node) -> Iterator[Node]:
        """`node` and its ancestors, without the root."""
        while node.parent is not None:
            parent = node.parent
            yield node
            node = parent

    def walk(self) -> Iterator[Node]:
        """All nodes but the root, parents first."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def update_leaf(self, node: Node) -> None:
        """Reckon anew whether `node` may be evicted whole: unlocked, and nothing hangs on it."""
        can_go = node is not self.root and not node.children and not node.is_locked
        self.leaves.update(node, can_go and node.full.held)

    # Removal

    def drop(self, kind: Kind, node: Node) -> int:
        """Take one component's unlocked data off `node` and give it back; how much it was."""
        amount = node.amount(kind)
        if amount:
            self.ledger.debit(kind, amount)
            self.pools.give_back(kind, amount)
            node.parts[kind].held = False
            recency = self.component(kind).recency
            if recency.holds(node):
                recency.remove(node)
        return amount

    def delete_leaf(self, node: Node) -> list[int]:
        """Remove an evictable leaf with all it holds; amounts freed by kind.

        Its parent may be left without children and without a state: it stays, as a leaf.
        """
        self.leaves.discard(node)
        freed = [self.drop(kind, node) if node.parts[kind].held else 0 for kind in Kind]
        parent = node.parent
        assert parent is not None
        del parent.children[node.content.page_key(node.start, self.page_size)]
        self.update_leaf(parent)
        return freed

    # Locks

    def lock(self, node: Node, skipped: set[Kind] | None = None) -> TreeLock:
        """Keep the path to `node` from eviction, as far as the components not skipped go."""
        lock = TreeLock(node, set(skipped or ()))
        for component in self.components:
            if component.kind not in lock.skipped:
                component.lock(node, lock)
        self.update_leaf(node)
        return lock

    def unlock(self, lock: TreeLock) -> None:
        for component in reversed(self.components):
            if component.kind not in lock.skipped:
                component.unlock(lock.node, lock)
        self.update_leaf(lock.node)

    def unlock_state(self, lock: TreeLock) -> None:
        """Give up the state part of a lock and keep the rest."""
        if Kind.STATE not in lock.skipped:
            self.states.unlock(lock.node, lock)
            lock.skipped.add(Kind.STATE)
