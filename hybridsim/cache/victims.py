"""A lazy priority queue of things that may be evicted."""

import heapq
from collections.abc import Callable

from hybridsim.cache.radix_tree import Node
from hybridsim.policies.base import Priority


class VictimQueue:
    """Finds the candidate of lowest priority.

    Relies on the law that a priority never falls while its object lives: a stale entry is then too
    low, comes up too early, and is put back where it belongs. So a touch costs nothing here.
    O(log n) amortised for each push and for each priority that changed since it was last seen.
    """

    def __init__(
        self, priority: Callable[[Node], Priority], is_candidate: Callable[[Node], bool]
    ) -> None:
        self._priority = priority
        self._is_candidate = is_candidate
        self._heap: list[tuple[Priority, int, Node]] = []
        self._queued: set[Node] = set()
        self._serial = 0  # breaks ties, so that nodes are never compared

    def push(self, node: Node) -> None:
        """Make the node findable. Whoever makes a node a candidate (again) must call this."""
        if node not in self._queued:
            self._queued.add(node)
            self._serial += 1
            heapq.heappush(self._heap, (self._priority(node), self._serial, node))

    def peek(self) -> tuple[Priority, Node] | None:
        """The next victim and its priority; None when there is no candidate."""
        heap = self._heap
        while heap:
            known, serial, node = heap[0]
            if not self._is_candidate(node):
                heapq.heappop(heap)
                self._queued.discard(node)
                continue
            priority = self._priority(node)
            if priority == known:
                return priority, node
            heapq.heapreplace(heap, (priority, serial, node))
        return None

    def holds(self, node: Node) -> bool:
        """Whether the node is findable; for the law check."""
        return node in self._queued
