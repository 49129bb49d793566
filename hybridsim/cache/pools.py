"""Memory: pages of KV, slots of recurrent state, and the two ways to share a budget between them.

Pools know amounts, not contents. A `limit` of None means unlimited.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lack:
    """What is missing. `num_bytes` may be made up by either kind (shared layout only)."""

    num_pages: int = 0
    num_slots: int = 0
    num_bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.num_pages or self.num_slots or self.num_bytes)


_NOTHING = Lack()  # asked for several times a state, so it is not made anew


class CountPool:
    """Interchangeable units. Used for KV pages: paging leaves no fragments, so a count is exact."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0

    def take(self, count: int) -> None:
        self.used += count
        assert count >= 0
        assert self.limit is None or self.used <= self.limit, "took more than there is"
        self.peak = max(self.peak, self.used)

    def give(self, count: int) -> None:
        assert 0 <= count <= self.used, "gave back more than was taken"
        self.used -= count


class SlotPool:
    """Numbered slots, one recurrent state each. First freed, first reused."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.taken: set[int] = set()
        self.peak = 0
        self._freed: dict[int, None] = {}  # an ordered set
        self._num_touched = 0

    def take(self) -> int:
        if self._freed:
            slot = next(iter(self._freed))
            del self._freed[slot]
        else:
            slot = self._num_touched
            self._num_touched += 1
            assert self.limit is None or slot < self.limit, "took more slots than there are"
        self.taken.add(slot)
        self.peak = max(self.peak, len(self.taken))
        return slot

    def give(self, slot: int) -> None:
        self.taken.remove(slot)
        self._freed[slot] = None


class Memory:
    """KV pages and state slots, each with its own limit (split layout).

    page_bytes: one page of KV over all attention layers. slot_bytes: one state over all recurrent
    layers; 0 for an attention-only model, which never takes a slot.
    """

    layout = "split"

    def __init__(
        self, page_bytes: int, slot_bytes: int, num_pages: int | None, num_slots: int | None
    ) -> None:
        self.page_bytes = page_bytes
        self.slot_bytes = slot_bytes
        self.pages = CountPool(num_pages)
        self.slots = SlotPool(num_slots)

    def holds(self, num_pages: int, num_slots: int) -> bool:
        """Whether that much would fit into the empty memory."""
        return _within(num_pages, self.pages.limit) and _within(num_slots, self.slots.limit)

    def lack(
        self, num_pages: int, num_slots: int, evictable_pages: int = 0, evictable_slots: int = 0
    ) -> Lack:
        """What is missing for taking that much, were the evictable part already free."""
        missing_pages = _missing(self.pages.limit, self.pages.used - evictable_pages + num_pages)
        missing_slots = _missing(
            self.slots.limit, len(self.slots.taken) - evictable_slots + num_slots
        )
        if not missing_pages and not missing_slots:
            return _NOTHING
        return Lack(missing_pages, missing_slots)

    @property
    def kv_bytes(self) -> int:
        return self.pages.used * self.page_bytes

    @property
    def state_bytes(self) -> int:
        return len(self.slots.taken) * self.slot_bytes

    def peak_bytes(self) -> tuple[int, int]:
        """Highest use seen of KV and of states."""
        return self.pages.peak * self.page_bytes, self.slots.peak * self.slot_bytes


class SharedMemory(Memory):
    """One budget of bytes from which pages and slots both draw (shared layout)."""

    layout = "shared"

    def __init__(self, page_bytes: int, slot_bytes: int, capacity_bytes: int) -> None:
        super().__init__(page_bytes, slot_bytes, None, None)
        self.capacity_bytes = capacity_bytes

    def _bytes(self, num_pages: int, num_slots: int) -> int:
        return num_pages * self.page_bytes + num_slots * self.slot_bytes

    def holds(self, num_pages: int, num_slots: int) -> bool:
        return self._bytes(num_pages, num_slots) <= self.capacity_bytes

    def lack(
        self, num_pages: int, num_slots: int, evictable_pages: int = 0, evictable_slots: int = 0
    ) -> Lack:
        used_bytes = self._bytes(
            self.pages.used - evictable_pages + num_pages,
            len(self.slots.taken) - evictable_slots + num_slots,
        )
        return Lack(num_bytes=_missing(self.capacity_bytes, used_bytes))


def _within(count: int, limit: int | None) -> bool:
    return limit is None or count <= limit


def _missing(limit: int | None, wanted: int) -> int:
    return 0 if limit is None or wanted <= limit else wanted - limit
