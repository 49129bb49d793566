"""A cache that never keeps anything, yet owns every page and slot of the running requests.

The baseline "no prefix caching" as an ordinary cache.
"""

from hybridsim.cache.base import CacheUsage, Lease, Match
from hybridsim.request import Request


class NullCache:
    """KV pages and one state slot for each running request; nothing outlives it.

    `num_pages` and `num_slots` of None mean unlimited. `page_bytes` and `slot_bytes` price them.
    """

    def __init__(
        self,
        page_tokens: int,
        num_pages: int | None = None,
        num_slots: int | None = None,
        page_bytes: int = 1,
        slot_bytes: int = 1,
    ) -> None:
        self.page_tokens = page_tokens
        self._num_pages = num_pages
        self._num_slots = num_slots
        self._page_bytes = page_bytes
        self._slot_bytes = slot_bytes
        self._leases: dict[Lease, int] = {}  # lease -> pages
        self._used_pages = 0
        self._peak_pages = 0
        self._peak_slots = 0

    def lookup(self, request: Request) -> Match:
        return Match(0, 0)

    def fits(self, request: Request) -> bool:
        within_pages = self._within(self._pages(request.num_final_tokens), self._num_pages)
        return within_pages and self._within(1, self._num_slots)

    def acquire(
        self, request: Request, match: Match, num_tokens: int | None = None
    ) -> Lease | None:
        lease = Lease(request, 0, 0)
        self._leases[lease] = 0
        if self._within(len(self._leases), self._num_slots) and self.grow(
            lease, num_tokens or request.num_prompt_tokens
        ):
            self._peak_slots = max(self._peak_slots, len(self._leases))
            return lease
        del self._leases[lease]
        return None

    def commit(self, lease: Lease, num_tokens: int) -> None:
        lease.num_committed_tokens = num_tokens

    def grow(self, lease: Lease, num_tokens: int) -> bool:
        num_more = max(0, self._pages(num_tokens) - self._leases[lease])
        if not self._within(self._used_pages + num_more, self._num_pages):
            return False
        self._leases[lease] += num_more
        self._used_pages += num_more
        self._peak_pages = max(self._peak_pages, self._used_pages)
        lease.num_tokens = max(lease.num_tokens, num_tokens)
        return True

    def release(self, lease: Lease, *, finished: bool) -> None:
        self._used_pages -= self._leases.pop(lease)

    def usage(self) -> CacheUsage:
        return CacheUsage(
            kv_bytes=self._used_pages * self._page_bytes,
            state_bytes=len(self._leases) * self._slot_bytes,
            peak_kv_bytes=self._peak_pages * self._page_bytes,
            peak_state_bytes=self._peak_slots * self._slot_bytes,
        )

    def check(self) -> None:
        """Pages in use are those that the leases hold, and none holds more than its tokens fill."""
        assert self._used_pages == sum(self._leases.values())
        assert self._within(self._used_pages, self._num_pages)
        assert self._within(len(self._leases), self._num_slots)
        for lease, num_pages in self._leases.items():
            assert num_pages == self._pages(lease.num_tokens), "pages do not match tokens"

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)

    @staticmethod
    def _within(count: int, limit: int | None) -> bool:
        return limit is None or count <= limit
