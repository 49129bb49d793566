"""The cache that keeps nothing, as an ordinary cache."""

from hybridsim.cache.null_cache import NullCache
from tests.sim.workloads import request


def test_pages_and_slots_belong_to_running_requests_only() -> None:
    cache = NullCache(4, num_pages=4, num_slots=2, page_bytes=10, slot_bytes=100)
    first, second = request(0, 5, 4), request(1, 4, 5)
    one = cache.acquire(first, cache.lookup(first))
    two = cache.acquire(second, cache.lookup(second))
    assert one is not None
    assert two is not None
    assert (cache.usage().kv_bytes, cache.usage().state_bytes) == (30, 200)  # 2 + 1 pages
    assert cache.acquire(second, cache.lookup(second)) is None  # no third slot
    assert cache.grow(one, 8)  # still two pages
    assert cache.grow(two, 5)
    assert not cache.grow(one, 9)
    cache.check()
    cache.release(one, finished=True)
    cache.release(two, finished=False)
    usage = cache.usage()
    assert (usage.kv_bytes, usage.state_bytes) == (0, 0)
    assert (usage.peak_kv_bytes, usage.peak_state_bytes) == (40, 200)


def test_it_never_hits() -> None:
    cache = NullCache(4)
    item = request(0, 50, 1)
    for _ in range(2):
        match = cache.lookup(item)
        assert (match.num_match_tokens, match.num_hit_tokens) == (0, 0)
        lease = cache.acquire(item, match)
        assert lease is not None
        cache.commit(lease, 50)
        cache.release(lease, finished=True)


def test_a_request_fits_when_all_but_its_last_token_do() -> None:
    cache = NullCache(4, num_pages=2)
    assert cache.fits(request(0, 6, 3))  # 8 tokens
    assert not cache.fits(request(0, 6, 4))
    assert not NullCache(4, num_slots=0).fits(request(0, 1, 1))
