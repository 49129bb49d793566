"""The order in which free blocks are used again. It knows no content and no reference."""

from collections.abc import Iterator, Sequence


class FreeQueue:
    """Blocks `1 .. num_blocks - 1`, all free at first, as a doubly linked list: each may leave in
    O(1), wherever it stands.

    `num_free`: blocks in the queue; `least_free`: the fewest there ever were.
    """

    def __init__(self, num_blocks: int) -> None:
        head, tail = num_blocks, num_blocks + 1
        self._head, self._tail = head, tail
        # Rows: block 0, which is never in the queue; the other blocks; the head; the tail.
        self._next = [0, *range(2, num_blocks), tail, 1, 0]
        self._previous = [0, head, *range(1, num_blocks - 1), 0, num_blocks - 1]
        self.num_free = num_blocks - 1
        self.least_free = self.num_free

    def __iter__(self) -> Iterator[int]:
        """Free blocks, the next to be reused first."""
        block = self._next[self._head]
        while block != self._tail:
            yield block
            block = self._next[block]

    def pop(self) -> int:
        """Take the block that is next to be reused."""
        block = self._next[self._head]
        self.remove(block)
        return block

    def remove(self, block: int) -> None:
        """Take a block out of turn."""
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_free -= 1
        self.least_free = min(self.least_free, self.num_free)

    def add_first(self, blocks: Sequence[int]) -> None:
        """These are reused before all others, in this order."""
        self._link_after(self._head, blocks)

    def add_last(self, blocks: Sequence[int]) -> None:
        """These are reused after all others, in this order."""
        self._link_after(self._previous[self._tail], blocks)

    def _link_after(self, place: int, blocks: Sequence[int]) -> None:
        after = self._next[place]
        for block in blocks:
            self._next[place], self._previous[block] = block, place
            place = block
        self._next[place], self._previous[after] = after, place
        self.num_free += len(blocks)

    def check(self) -> None:
        """Raise AssertionError unless the list is linked both ways and counted right."""
        order = list(self)
        assert len(order) == len(set(order)) == self.num_free, "the free queue miscounts"
        places = [self._head, *order, self._tail]
        pairs = zip(places, places[1:], strict=False)
        assert all(self._previous[b] == a for a, b in pairs), "the free queue is torn"
