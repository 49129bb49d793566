"""The KV that one running request holds: pages it owns, and a head that the tree owns."""

from hybridsim.engines.sglang.components import Insertion
from hybridsim.engines.sglang.decision import Death, EngineDied
from hybridsim.engines.sglang.eviction import Evictor
from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.pools import Pools


class KVRow:
    """num_tokens: tokens there is KV for. num_shared: of these, the first ones are the tree's.

    `extend` and `decode_to` evict what they need and raise `EngineDied` where that is not enough.
    """

    def __init__(self, options: SGLangOptions, pools: Pools, evictor: Evictor) -> None:
        self._page = options.page_size
        self._evicts = options.radix
        self._pools = pools
        self._evictor = evictor
        self.num_tokens = 0
        self.num_shared = 0

    def start_at(self, num_hit_tokens: int) -> None:
        """The reused prefix: the tree's, and computed already."""
        self.num_tokens = self.num_shared = num_hit_tokens

    def extend(self, end: int) -> None:
        """KV for the tokens up to `end` (one prefill chunk)."""
        # With pages the engine asks for one more than the tokens could need.
        self._make_room(end - self.num_tokens + (self._page if self._page > 1 else 0))
        num_pages = self._pools.num_pages(end) - self._pools.num_pages(self.num_tokens)
        if not self._pools.kv_pages.take(num_pages):
            raise EngineDied(Death.PREFILL_KV)
        self.num_tokens = end

    def decode_to(self, end: int) -> None:
        """KV for the tokens up to `end`, one decode step a token, in leaps."""
        pages, page = self._pools.kv_pages, self._page
        while self.num_tokens < end:
            if not pages.num_free:
                self._make_room(page)
            if page == 1:
                step = min(max(pages.num_free, 1), end - self.num_tokens)
                self._take_decode_pages(step)
                self.num_tokens += step
            elif self.num_tokens % page == 0:
                self._take_decode_pages(1)
                self.num_tokens += 1
            else:
                # To the end of the page no memory is taken. A step at which none is free still
                # evicts, but only the first of them can find something to evict.
                self.num_tokens = min(end, -(-self.num_tokens // page) * page)

    def _take_decode_pages(self, num_pages: int) -> None:
        if not self._pools.kv_pages.take(num_pages):
            raise EngineDied(Death.DECODE_KV)

    def _make_room(self, num_tokens: int) -> None:
        shortage = num_tokens - self._pools.free_kv_tokens
        if shortage > 0 and self._evicts:
            self._evictor.for_allocation(tokens=shortage)

    def share(self, insertion: Insertion) -> None:
        """The tree has taken the first tokens; copies of what it had go back to the pool."""
        self._pools.kv_pages.give_back(insertion.num_released // self._page)
        self.num_shared = insertion.end

    def free(self) -> None:
        """Give back everything that is not the tree's."""
        private = self._pools.num_pages(self.num_tokens) - self.num_shared // self._page
        self._pools.kv_pages.give_back(private)
        self.num_tokens = self.num_shared
