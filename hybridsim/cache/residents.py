"""What is resident and may be evicted: the tree together with its bytes, recency and locks.

The evict-until-it-fits loop is here, once, for every policy and both layouts.
"""

from hybridsim.cache.base import Lease
from hybridsim.cache.edge import PathKey
from hybridsim.cache.gaps import Gaps
from hybridsim.cache.pools import Lack, Memory
from hybridsim.cache.radix_tree import Node, RadixTree, Walk
from hybridsim.cache.scanned import ScannedVictims
from hybridsim.cache.victims import (
    RankedVictims,
    Victim,
    Victims,
    is_kv_candidate,
    is_state_candidate,
)
from hybridsim.policies.base import Evicted, EvictionPolicy, RankingPolicy, ScanningPolicy
from hybridsim.request import Request


class Residents:
    """KV and states in the tree. `now` is a logical clock; each use of the cache is one tick."""

    def __init__(self, tree: RadixTree, memory: Memory, eviction: EvictionPolicy) -> None:
        self.tree = tree
        self.memory = memory
        self.eviction = eviction
        self.now = 0
        self.num_states = 0
        self.evictable_tokens = 0  # KV on nodes that nobody has locked
        self.evictable_states = 0
        self._gaps = Gaps(tree.root) if eviction.weighs_gaps else None
        self._victims = _victims(eviction, self._gaps)
        self._user: Request | None = None

    def begin(self, request: Request, num_hit_tokens: int) -> None:
        """A request is admitted."""
        self.tick(request)
        self.eviction.on_request(request, num_hit_tokens)

    def tick(self, user: Request) -> None:
        """The clock moves; what is touched until the next tick is used by `user`."""
        self.now += 1
        self._user = user

    # -- room

    def can_have(
        self, num_pages: int, num_slots: int, kept_pages: int = 0, kept_slots: int = 0
    ) -> bool:
        """Whether that much can be had by evicting all that is not locked and not to be kept."""
        evictable_pages = self.evictable_tokens // self.tree.page_tokens - kept_pages
        evictable_slots = self.evictable_states - kept_slots
        return not self.memory.lack(num_pages, num_slots, evictable_pages, evictable_slots)

    def make_room(self, lease: Lease, num_pages: int, num_slots: int) -> None:
        """Evict until that much is free. The caller has asked `can_have` first."""
        while lack := self.memory.lack(num_pages, num_slots):
            kv_helps = bool(lack.num_pages or (lack.num_bytes and self.memory.page_bytes))
            state_helps = bool(lack.num_slots or lack.num_bytes)
            victim = self._victims.next(kv_helps, state_helps, self.now)
            assert victim is not None, "can_have promised room that is not there"
            if victim.is_kv and not victim.node.has_state:
                self._evict_kv(lease, victim, lack)
            else:
                self._evict_state(lease, victim)

    def _evict_kv(self, lease: Lease, victim: Victim, lack: Lack) -> None:
        """Drop the leaf's last pages, as many as are missing; a state at its end went before."""
        leaf, page_tokens = victim.node, self.tree.page_tokens
        missing_pages = lack.num_pages or -(-lack.num_bytes // self.memory.page_bytes)
        allowed_tokens = leaf.end - self.eviction.kv_floor(leaf) // page_tokens * page_tokens
        num_tokens = min(missing_pages * page_tokens, leaf.num_tokens, allowed_tokens)
        parent, end = leaf.parent, leaf.end
        self.tree.trim(leaf, end - num_tokens)
        self.eviction.on_eviction(
            Evicted(victim.priority, leaf, True, end - num_tokens, end), self.now
        )
        self._victims.changed(leaf)
        leaf.had_state = False
        self.memory.pages.give(num_tokens // self.tree.page_tokens)
        self.evictable_tokens -= num_tokens
        lease.num_evicted_tokens += num_tokens
        if parent is not None and is_kv_candidate(parent):
            self._victims.add_kv(parent)

    def _evict_state(self, lease: Lease, victim: Victim) -> None:
        node = victim.node
        self.drop_state(lease, node)
        evicted = Evicted(victim.priority, node, False, node.end, node.end)
        self.eviction.on_eviction(evicted, self.now)

    def drop_state(self, lease: Lease, node: Node) -> None:
        """Free the slot of a state that nobody is copying; a tombstone is left."""
        self.memory.slots.give(self._drop_state(node))
        node.had_state = True
        lease.num_evicted_states += 1

    def _drop_state(self, node: Node) -> int:
        assert node.state_slot is not None
        slot, node.state_slot = node.state_slot, None
        self._victims.changed(node)
        if self._gaps is not None:
            for below in self._gaps.dropped(node):
                self._victims.changed(below)
        self.num_states -= 1
        self.evictable_states -= 0 if node.state_locks else 1
        return slot

    def unlocked_pages(self, walk: Walk, num_tokens: int) -> int:
        """Pages of the first `num_tokens` of the walked path that are not locked yet."""
        nodes = [*walk.nodes, walk.partial] if walk.partial else walk.nodes
        unlocked = sum(
            min(node.end, num_tokens) - node.start
            for node in nodes
            if node is not None and not node.kv_locks and node.start < num_tokens
        )
        return unlocked // self.tree.page_tokens

    # -- locks and recency

    def lock_path(self, node: Node, hit_node: Node | None) -> None:
        """Lock and touch the path of `node`; lock the state that is about to be copied."""
        for step in node.path():
            self._lock_kv(step)
            self._touch_kv(step)
            if step.has_state and step is not hit_node and self.eviction.refreshes_path:
                self.touch_state(step)
        if hit_node is not None:
            self.touch_state(hit_node)
            hit_node.num_state_touches += 1
            hit_node.state_locks += 1
            self.evictable_states -= 1 if hit_node.state_locks == 1 else 0

    def unlock_path(self, node: Node) -> None:
        """Unlock and touch the path of `node`."""
        for step in node.path():
            step.kv_access = self.now
            if step.has_state and self.eviction.refreshes_path:
                step.state_access = self.now  # a use was told when the path was locked
            self._victims.changed(step)
            step.kv_locks -= 1
            if not step.kv_locks:
                self.evictable_tokens += step.num_tokens
                if not step.children:
                    self._victims.add_kv(step)

    def unlock_state(self, node: Node) -> None:
        node.state_locks -= 1
        if not node.state_locks:
            self.evictable_states += 1
            self._victims.add_state(node)

    def _lock_kv(self, node: Node) -> None:
        if not node.kv_locks:
            self.evictable_tokens -= node.num_tokens
        node.kv_locks += 1

    def _touch_kv(self, node: Node) -> None:
        node.kv_access = self.now
        node.num_touches += 1
        node.last_user = self._user
        self.eviction.on_kv_use(node, self.now)
        self._victims.changed(node)

    def touch_state(self, node: Node) -> None:
        node.state_access = self.now
        self.eviction.on_state_use(node, self.now)
        self._victims.changed(node)
        if self.eviction.may_fall and not node.state_locks:
            self._victims.add_state(node)

    # -- content

    def split(self, node: Node, position: int) -> Node:
        head = self.tree.split(node, position, self.now)
        self.eviction.on_split(head, node)
        self._victims.changed(node)
        return head

    def extend(self, key: PathKey, node: Node, end: int) -> tuple[Node, int]:
        """Carry a locked path on from `node` to `end`: adopt what is there, append the rest.

        Returns the node at `end` and the number of tokens that were resident already.
        """
        walk = self.tree.walk(key, node)
        num_adopted_tokens = min(walk.num_tokens, end) - node.end
        index = walk.index
        for step in (*walk.nodes, walk.partial):
            if step is None or step.start >= end:
                break
            position = min(walk.num_tokens, end)
            node = step if step.end <= position else self.split(step, position)
            self._lock_kv(node)
            self._touch_kv(node)
        if node.end < end:
            node = self.tree.append(node, key, index, end, self.now)
            node.kv_locks = 1
            node.last_user = self._user
            self.eviction.on_kv_use(node, self.now)
        return node, num_adopted_tokens

    def put_state(self, node: Node, slot: int, source: str) -> None:
        """Keep a state at the end of `node`."""
        node.state_slot = slot
        node.state_source = source
        node.state_access = node.state_created = self.now
        node.num_state_touches = 1
        node.had_state = False
        self.num_states += 1
        self.evictable_states += 1
        if self._gaps is not None:
            for below in self._gaps.saved(node):
                self._shorter_gap(below)
        self.eviction.on_state_use(node, self.now)
        self._victims.add_state(node)

    def _shorter_gap(self, node: Node) -> None:
        self._victims.changed(node)
        if is_state_candidate(node):
            self._victims.add_state(node)  # its priority may have fallen

    def take_over_state(self, node: Node) -> int:
        """Hand the state's own slot to the request that was to copy it."""
        node.state_locks -= 1
        if not node.state_locks:
            self.evictable_states += 1
        node.had_state = True
        return self._drop_state(node)

    # -- for the law check

    def is_right(self, node: Node) -> bool:
        """Whether every way in which the node may be evicted would be found, and rightly ranked."""
        gap_is_right = self._gaps is None or self._gaps.is_right(node)
        return gap_is_right and self._victims.is_right(node)


def _victims(eviction: EvictionPolicy, gaps: Gaps | None) -> Victims:
    """The search that fits the policy."""
    if isinstance(eviction, ScanningPolicy):
        return ScannedVictims(eviction, gaps)
    assert isinstance(eviction, RankingPolicy)
    return RankedVictims(eviction)
