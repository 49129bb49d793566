"""The KV that one running request holds: pages it owns, and a head that the tree owns."""

from math import inf

from hybridsim.engines.sglang.components import Insertion
from hybridsim.engines.sglang.decision import Death, EngineDied
from hybridsim.engines.sglang.eviction import Evictor
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.pools import Pools

SLIDE_TOKENS = 128  # decoding frees sliding-window KV when so much has left the window


class KVRow:
    """num_tokens: tokens there is KV for. num_shared: of these, the first ones are the tree's.

    window_start: below it the request has no sliding-window KV of its own any more.
    `extend` and `decode_to` evict what they need and raise `EngineDied` where that is not enough.
    """

    def __init__(self, options: SGLangOptions, pools: Pools, evictor: Evictor) -> None:
        self._page = options.page_size
        self._window = options.sliding_window
        self._evicts = options.radix
        self._pools = pools
        self._evictor = evictor
        self._slides_from = 0
        self.num_tokens = 0
        self.num_shared = 0
        self.window_start = 0

    def start_at(self, num_hit_tokens: int) -> None:
        """The reused prefix: the tree's, and computed already."""
        self.num_tokens = self.num_shared = num_hit_tokens

    def extend(self, end: int) -> None:
        """KV for the tokens up to `end` (one prefill chunk)."""
        # With pages the engine asks for one more than the tokens could need.
        self._make_room(end - self.num_tokens + (self._page if self._page > 1 else 0))
        num_pages = self._pools.num_pages(end) - self._pools.num_pages(self.num_tokens)
        self._take(num_pages, Death.PREFILL_KV)
        self.num_tokens = end
        # The first decode step still overlaps with prefill and must not free anything.
        self._slides_from = end + 1

    def decode_to(self, end: int, tracked_at: int | None) -> None:
        """KV for the tokens up to `end`, one decode step a token, in leaps.

        tracked_at: position of the state to hand over later, constant during these steps.
        """
        while self.num_tokens < end:
            event = self._next_slide(tracked_at)
            if event <= self.num_tokens:
                self.slide(self.num_tokens, tracked_at)
                event = self._next_slide(tracked_at)
            self._leap(int(min(end, event)) if event > self.num_tokens else self.num_tokens + 1)

    def _leap(self, end: int) -> None:
        """Decode steps up to `end` or less, but one at least."""
        num_free, page = self._pools.num_free_pages, self._page
        if not num_free:
            self._make_room(page)
            num_free = self._pools.num_free_pages
        if page == 1:
            step = min(max(num_free, 1), end - self.num_tokens)
            self._take(step, Death.DECODE_KV)
            self.num_tokens += step
        elif self.num_tokens % page == 0:
            self._take(1, Death.DECODE_KV)
            self.num_tokens += 1
        else:
            # To the end of the page no memory is taken. A step at which none is free still
            # evicts, but only the first of them can find something to evict.
            self.num_tokens = min(end, -(-self.num_tokens // page) * page)

    def _take(self, num_pages: int, death: Death) -> None:
        """Every page has a twin in the sliding-window pool, where there is one."""
        pools = self._pools
        if num_pages > pools.num_free_pages:
            raise EngineDied(death)
        pools.kv_pages.take(num_pages)
        if self._window is not None:
            pools.swa_pages.take(num_pages)

    def _make_room(self, num_tokens: int) -> None:
        if not self._evicts:
            return
        shortage = max(0, num_tokens - self._pools.free_kv_tokens)
        window_shortage = 0
        if self._window is not None:
            window_shortage = max(0, num_tokens - self._pools.free_swa_tokens)
        if shortage or window_shortage:
            self._evictor.for_allocation(tokens=shortage, window=window_shortage)

    # The sliding window

    def slide(self, position: int, tracked_at: int | None) -> None:
        """Free own sliding-window KV that nobody looks back on from `position`.

        What lies within a window of a tracked state is kept: it will go into the tree with it.
        """
        if self._window is None or position - self._window <= self.window_start:
            return
        start = self.window_start = max(self.window_start, self.num_shared)
        end = position - self._keep
        if tracked_at is not None:
            end = min(end, tracked_at - self._window)
        end = end // self._page * self._page
        if end > start:
            self._pools.swa_pages.give_back((end - start) // self._page)
            self.window_start = end

    @property
    def _keep(self) -> int:
        """Tokens before a position that stay: a window, in whole pages."""
        assert self._window is not None
        return -(-max(self._window, self._page) // self._page) * self._page

    def _next_slide(self, tracked_at: int | None) -> float:
        """Number of tokens at which a decode step slides the window to some effect."""
        if self._window is None:
            return inf
        due = max(self.window_start + self._window + SLIDE_TOKENS, self._slides_from)
        if self.window_start < self.num_shared:
            return due
        if tracked_at is not None and tracked_at - self._window < self.window_start + self._page:
            return inf
        return max(due, self.window_start + self._page + self._keep)

    # Into the tree, and the end

    def share(self, insertion: Insertion) -> None:
        """The tree has taken the first tokens; copies of what it had go back to the pools."""
        self._pools.kv_pages.give_back(insertion.num_released // self._page)
        if self._window is not None:
            self._pools.swa_pages.give_back(insertion.num_released_window // self._page)
        self.num_shared = insertion.end

    def free(self) -> None:
        """Give back everything that is not the tree's."""
        num_pages = self._pools.num_pages(self.num_tokens)
        self._pools.kv_pages.give_back(num_pages - self.num_shared // self._page)
        if self._window is not None:
            first = max(self.num_shared, self.window_start) // self._page
            self._pools.swa_pages.give_back(num_pages - first)
        self.num_tokens = self.num_shared
