"""The engine's memory as counts: who gets a page or a slot never depends on which one it is."""

from dataclasses import dataclass

from hybridsim.engines.sglang.node import Kind
from hybridsim.engines.sglang.options import SGLangOptions


@dataclass(slots=True)
class Pool:
    """`num_free` of `capacity` units, none of which has a name; `peak_used` were taken at once."""

    capacity: int
    num_free: int
    peak_used: int = 0

    def take(self, amount: int) -> bool:
        """Take `amount` units; False, and nothing changed, when there are fewer."""
        if amount > self.num_free:
            return False
        self.num_free -= amount
        self.peak_used = max(self.peak_used, self.capacity - self.num_free)
        return True

    def give_back(self, amount: int) -> None:
        self.num_free += amount
        assert self.num_free <= self.capacity, "more given back than was ever taken"


def _pool(capacity: int) -> Pool:
    return Pool(capacity, capacity)


class Pools:
    """KV pages, sliding-window KV pages, state slots, and the tree's own slots if they differ."""

    def __init__(self, options: SGLangOptions) -> None:
        self.page_size = options.page_size
        self.kv_pages = _pool(options.kv_tokens // options.page_size)
        self.swa_pages = _pool((options.swa_tokens or 0) // options.page_size)
        self.slots = _pool(options.state_slots)
        self.checkpoints = _pool(options.num_checkpoint_slots) if options.int8_ckpt else self.slots

    @property
    def separate_checkpoints(self) -> bool:
        """Whether the tree keeps its states in slots that requests cannot use."""
        return self.checkpoints is not self.slots

    @property
    def num_free_pages(self) -> int:
        """Pages that a request can take: each needs a twin in the sliding-window pool."""
        if not self.swa_pages.capacity:
            return self.kv_pages.num_free
        return min(self.kv_pages.num_free, self.swa_pages.num_free)

    @property
    def free_kv_tokens(self) -> int:
        return self.kv_pages.num_free * self.page_size

    @property
    def free_swa_tokens(self) -> int:
        return self.swa_pages.num_free * self.page_size

    def available(self, kind: Kind) -> int:
        """What the next allocation of this kind can draw on: tokens, or slots for requests."""
        if kind is Kind.FULL:
            return self.free_kv_tokens
        return self.free_swa_tokens if kind is Kind.SWA else self.slots.num_free

    def give_back(self, kind: Kind, amount: int) -> None:
        """Take back what a tree node held: whole pages of tokens, or states."""
        if kind is Kind.STATE:
            self.checkpoints.give_back(amount)
            return
        pages = self.kv_pages if kind is Kind.FULL else self.swa_pages
        pages.give_back(amount // self.page_size)

    def num_pages(self, num_tokens: int) -> int:
        """Pages that hold `num_tokens` tokens from a page's start on."""
        return -(-num_tokens // self.page_size)
