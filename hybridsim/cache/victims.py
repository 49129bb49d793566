"""Finding what goes next: the candidate that the eviction policy ranks lowest."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hybridsim.cache.radix_tree import Node
from hybridsim.policies.base import Priority, RankingPolicy

_SMALLEST_SWEEP = 256


@dataclass(frozen=True, slots=True)
class Victim:
    """`is_kv`: the KV at the node's end goes, else the state there."""

    priority: Priority
    node: Node
    is_kv: bool


class Victims(Protocol):
    """Whoever makes a node a candidate (again) adds it; what stops being one is noticed later."""

    def add_kv(self, node: Node) -> None: ...

    def add_state(self, node: Node) -> None: ...

    def next(self, kv_helps: bool, state_helps: bool, now: int) -> Victim | None:
        """The lowest candidate of the kinds that help; None when there is none."""
        ...

    def changed(self, node: Node) -> None:
        """What the policy sees of the node's KV or state is another; a priority may have risen."""
        ...

    def is_right(self, node: Node) -> bool:
        """Whether the node is known rightly wherever it is a candidate; for the law check."""
        ...


def is_kv_candidate(node: Node) -> bool:
    """A leaf that nobody has locked and that is still in the tree."""
    return (
        not node.children
        and not node.kv_locks
        and node.parent is not None
        and node.parent.children.get(node.key) is node
    )


def is_state_candidate(node: Node) -> bool:
    return node.state_slot is not None and not node.state_locks


class _Queue:
    """A lazy priority queue.

    A priority that rose is noticed when its stale, too low entry comes up; one that fell must be
    pushed again. O(log n) amortised for each push and each change seen.
    """

    def __init__(
        self, priority: Callable[[Node], Priority], is_candidate: Callable[[Node], bool]
    ) -> None:
        self._priority = priority
        self._is_candidate = is_candidate
        self._heap: list[tuple[Priority, int, Node]] = []
        self._queued: dict[Node, Priority] = {}  # node -> priority of its valid entry
        self._serial = 0  # breaks ties, so that nodes are never compared
        self._sweep_at = _SMALLEST_SWEEP

    def __contains__(self, node: Node) -> bool:
        return node in self._queued

    def push(self, node: Node) -> None:
        priority = self._priority(node)
        known = self._queued.get(node)
        if known is None or priority < known:
            self._queued[node] = priority
            self._serial += 1
            heapq.heappush(self._heap, (priority, self._serial, node))
            if len(self._heap) > self._sweep_at:
                self._sweep()

    def push_candidate(self, node: Node) -> None:
        """Push it if it is one now; what is none yet is pushed when it becomes one."""
        if self._is_candidate(node):
            self.push(node)

    def _sweep(self) -> None:
        """Drop stale entries, so that memory follows the candidates and not the trace."""
        self._queued = {n: p for n, p in self._queued.items() if self._is_candidate(n)}
        self._heap = [entry for entry in self._heap if self._queued.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)
        self._sweep_at = max(_SMALLEST_SWEEP, 2 * len(self._heap))

    def peek(self) -> tuple[Priority, Node] | None:
        heap = self._heap
        while heap:
            known, serial, node = heap[0]
            if self._queued.get(node) != known:
                heapq.heappop(heap)  # a lower entry was pushed later
            elif not self._is_candidate(node):
                heapq.heappop(heap)
                del self._queued[node]
            elif (priority := self._priority(node)) == known:
                return priority, node
            else:
                self._queued[node] = priority
                heapq.heapreplace(heap, (priority, serial, node))
        return None


class RankedVictims:
    """Two queues, for policies whose priorities change on use only."""

    def __init__(self, eviction: RankingPolicy) -> None:
        self._fallen = eviction.fallen
        self._kv = _Queue(eviction.kv_priority, is_kv_candidate)
        self._states = _Queue(eviction.state_priority, is_state_candidate)

    def add_kv(self, node: Node) -> None:
        self._kv.push(node)

    def add_state(self, node: Node) -> None:
        self._states.push(node)

    def next(self, kv_helps: bool, state_helps: bool, now: int) -> Victim | None:
        for item, is_kv in self._fallen():
            assert isinstance(item, Node)
            (self._kv if is_kv else self._states).push_candidate(item)
        kv = self._kv.peek() if kv_helps else None
        state = self._states.peek() if state_helps else None
        if kv is not None and (state is None or kv[0] < state[0]):
            return Victim(*kv, is_kv=True)
        return None if state is None else Victim(*state, is_kv=False)

    def changed(self, node: Node) -> None:
        """A priority that rose is noticed anyway."""

    def is_right(self, node: Node) -> bool:
        kv_found = not is_kv_candidate(node) or node in self._kv
        return kv_found and (not is_state_candidate(node) or node in self._states)
