"""Makes a failing list smaller while it keeps failing (delta debugging over its items)."""

from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")


def shrink(items: list[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """A sublist that still fails and from which no single item can be left out.

    Costs about n log n calls of `fails` at best, n^2 at worst.
    """
    size = max(1, len(items) // 2)
    while True:
        start, removed = 0, False
        while start < len(items):
            candidate = items[:start] + items[start + size :]
            if candidate and fails(candidate):
                items, removed = candidate, True
            else:
                start += size
        if size == 1 and not removed:
            return items
        size = max(1, size // 2)
