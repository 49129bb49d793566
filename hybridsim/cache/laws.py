"""The laws of the research cache, each a sum over owners. Run at the end of every run."""

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybridsim.cache.radix_cache import RadixCache
    from hybridsim.cache.radix_tree import Node


def check(cache: "RadixCache") -> None:
    """Raise AssertionError with both sides of the first law that is broken. O(nodes + leases)."""
    nodes = list(cache.tree.nodes())
    _check_shape(cache, nodes)
    _check_pages(cache, nodes)
    _check_slots(cache, nodes)
    _check_locks(cache, nodes)
    _check_evictable(cache, nodes)


def _law(name: str, left: object, right: object) -> None:
    if left != right:
        raise AssertionError(f"law broken: {name}: {left} != {right}")


def _check_shape(cache: "RadixCache", nodes: list["Node"]) -> None:
    page = cache.page_tokens
    _law("nodes counted == nodes found", cache.tree.num_nodes, len(nodes))
    for node in nodes:
        assert node.parent is not None
        _law("edge starts where its parent ends", node.start, node.parent.end)
        _law("edge ends on a page", node.end % page, 0)
        _law("edge is not empty", node.num_tokens > 0, True)
        _law("child is filed under its first page", node.key, node.edge.key(page))
        _law("child is where its key says", node.parent.children.get(node.key) is node, True)


def _check_pages(cache: "RadixCache", nodes: list["Node"]) -> None:
    tree_pages = sum(node.num_tokens for node in nodes) // cache.page_tokens
    private_pages = sum(lease.handle.private_pages for lease in cache.leases)
    _law("pages in tree + private pages == pages used", tree_pages + private_pages,
         cache.memory.pages.used)  # fmt: skip
    _law("all within the limits", bool(cache.memory.lack(0, 0)), False)
    for lease in cache.leases:
        own = lease.num_committed_tokens + lease.handle.private_pages * cache.page_tokens
        _law("a lease has KV for all its tokens", own >= lease.num_tokens, True)


def _check_slots(cache: "RadixCache", nodes: list["Node"]) -> None:
    slots = [node.state_slot for node in nodes if node.state_slot is not None]
    _law("states counted == states found", cache.residents.num_states, len(slots))
    slots += [lease.handle.slot for lease in cache.leases if lease.handle.slot is not None]
    _law("each slot has one owner", len(set(slots)), len(slots))
    _law("slots owned == slots taken", set(slots), cache.memory.slots.taken)
    if not cache.is_hybrid:
        _law("an attention-only model has no state", slots, [])


def _check_locks(cache: "RadixCache", nodes: list["Node"]) -> None:
    kv_locks: Counter[Node] = Counter()
    state_locks: Counter[Node] = Counter()
    for lease in cache.leases:
        kv_locks.update(lease.handle.node.path())
        _law("a lease's node ends at its commit", lease.handle.node.end, lease.num_committed_tokens)
        if lease.handle.source is not None:
            state_locks[lease.handle.source] += 1
    for node in nodes:
        _law("KV locks == leases whose path runs here", node.kv_locks, kv_locks[node])
        _law("state locks == leases copying it", node.state_locks, state_locks[node])
        _law("a locked state is there", node.state_locks == 0 or node.has_state, True)


def _check_evictable(cache: "RadixCache", nodes: list["Node"]) -> None:
    residents = cache.residents
    unlocked_tokens = sum(node.num_tokens for node in nodes if not node.kv_locks)
    _law("evictable tokens == tokens nobody locked", residents.evictable_tokens, unlocked_tokens)
    unlocked_states = sum(node.has_state and not node.state_locks for node in nodes)
    _law("evictable states == states nobody locked", residents.evictable_states, unlocked_states)
    _law("every candidate can be found", all(map(residents.is_right, nodes)), True)
