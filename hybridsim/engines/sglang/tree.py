"""The radix tree of all components: lookups that split nodes, insertions, locks, leaves.

It knows neither requests nor the order in which memory runs short.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from hybridsim.engines.content import Content
from hybridsim.engines.sglang.components import (
    Component,
    FullKV,
    Insertion,
    States,
    TreeLock,
)
from hybridsim.engines.sglang.leaves import LeafQueue, rank_of
from hybridsim.engines.sglang.node import Clock, Kind, Node
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.pools import Pools

AGE_STEP = 1e-5  # by which each node on a matched path is older than the one below it


@dataclass(frozen=True, slots=True)
class TreeMatch:
    """num_match_tokens: KV found, on a page boundary. `node`: the deepest usable one, or the root."""

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
        self.root = self._new_node(Content.of(), 0, 0, None)
        self.root.full.held = True
        # Tokens or states that may be evicted, and those that a request has locked, by kind.
        self.num_evictable = [0, 0, 0]
        self.num_protected = [0, 0, 0]
        self.states = States(self, options.max_states_per_path)
        self.components: list[Component] = [FullKV(self), self.states]
        self._tracks_history = options.eviction_policy == "tlru"

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
            child = node.children.get(content.page_key(node.end, self.page_size))
            if child is None:
                return
            end = self._agreement(content, child, stop)
            node = child if end == child.end else self.split(child, end)
            yield node
            if node is not child:
                return

    def _agreement(self, content: Content, child: Node, stop: int) -> int:
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

    def _new_node(self, content: Content, start: int, end: int, parent: Node | None) -> Node:
        node = Node(content, start, end, parent, self._num_nodes)
        self._num_nodes += 1
        node.last_access, node.created = self.clock.tick(), self.clock.tick()
        return node

    def split(self, child: Node, at: int) -> Node:
        """Cut the tokens before `at` off `child`; they become its new parent, without a state."""
        above = child.parent
        assert above is not None
        parent = self._new_node(child.content, child.start, at, above)
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

    # Insertion

    def insert(self, insertion: Insertion) -> Node:
        """Put `content[:end]` into the tree and attach what it brings; the node it ends on.

        Nodes already there stay and the request's copies of their KV are counted as released.
        """
        node, content = self.root, insertion.content
        node.last_access = self.clock.tick()
        node.priority = max(node.priority, insertion.priority)
        while node.end < insertion.end:
            child = node.children.get(content.page_key(node.end, self.page_size))
            if child is None:
                break
            node = self._pass(child, insertion)
        insertion.num_matched = node.end
        is_new = node.end < insertion.end
        if is_new:
            node = self._add_leaf(node, insertion)
        for component in self.components:
            component.commit(node, is_new, insertion)
        if insertion.capped_tail is not None:
            self.states.cap_path(insertion.capped_tail)
        for component in self.components:
            component.refresh_after_insert(node)
        if is_new:
            self._count_use(node, insertion)
        self.update_leaf(node)
        return node

    def _pass(self, child: Node, insertion: Insertion) -> Node:
        """One node that the insertion shares with the tree."""
        child.last_access = self.clock.tick()
        start = child.start
        end = self._agreement(insertion.content, child, min(insertion.end, child.end))
        node = child if end == child.end else self.split(child, end)
        node.priority = max(node.priority, insertion.priority)
        claimed_from = min(part.claim_overlap(node, insertion) for part in self.components)
        self._release_copies(max(start, insertion.num_shared), claimed_from, insertion)
        self._count_use(node, insertion)
        return node

    def _release_copies(self, start: int, end: int, insertion: Insertion) -> None:
        if start < end:
            insertion.num_released += end - start
            insertion.num_released_window += max(0, end - max(start, insertion.window_start))

    def _count_use(self, node: Node, insertion: Insertion) -> None:
        if node.end > insertion.num_counted:
            node.hit_count += 1
        self.update_leaf(node)

    def _add_leaf(self, parent: Node, insertion: Insertion) -> Node:
        leaf = self._new_node(insertion.content, parent.end, insertion.end, parent)
        leaf.priority = insertion.priority
        leaf.full.held = True
        parent.children[insertion.content.page_key(leaf.start, self.page_size)] = leaf
        self.credit(Kind.FULL, leaf)
        if self._tracks_history:
            self._raise_history(leaf)
        self.update_leaf(leaf)
        self.update_leaf(parent)
        return leaf

    def _raise_history(self, leaf: Node) -> None:
        """Let the branch remember how deep it has been."""
        one: Node | None = leaf
        while one is not None and one.history_tokens < leaf.end:
            one.history_tokens = leaf.end
            one = one.parent

    # Ledger and removal

    def credit(self, kind: Kind, node: Node) -> None:
        """New data on `node` joins the ledger."""
        ledger = self.num_protected if node.parts[kind].locks else self.num_evictable
        ledger[kind] += node.amount(kind)

    def protect(self, kind: Kind, amount: int) -> None:
        """Move `amount` from evictable to protected (back when negative)."""
        self.num_evictable[kind] -= amount
        self.num_protected[kind] += amount

    def drop(self, kind: Kind, node: Node) -> int:
        """Take one component's unlocked data off `node` and give it back; how much it was."""
        amount = node.amount(kind)
        if amount:
            self.num_evictable[kind] -= amount
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
