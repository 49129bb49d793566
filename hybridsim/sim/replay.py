"""Replay: one request after another, no clock. Hit rates without latencies."""

from collections.abc import Callable, Sequence

from hybridsim.cache.base import Lease, Match, PrefixCache
from hybridsim.records import RequestRecord
from hybridsim.request import Request
from hybridsim.sim.admission import account, admitted, refused

Progress = Callable[[int, int], None]


def replay(
    requests: Sequence[Request],
    cache: PrefixCache,
    ideal_tokens: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[RequestRecord]:
    """Serve every request to its end before the next one starts, then check the cache's laws.

    ideal_tokens: what an infinite cache would have hit, a number a request (from the trie); tells
    evicted prefixes from unseen ones in `miss_reason`. Cost is linear in the trace.
    """
    records = []
    for index, request in enumerate(requests):
        ideal = None if ideal_tokens is None else int(ideal_tokens[index])
        records.append(serve(request, cache, ideal))
        if progress is not None:
            progress(index + 1, len(requests))
    cache.check()
    return records


def serve(request: Request, cache: PrefixCache, ideal_tokens: int | None = None) -> RequestRecord:
    """Run one request through an otherwise idle cache."""
    if not cache.fits(request):
        return refused(request)
    match = cache.lookup(request)
    record = admitted(request, match, ideal_tokens)
    account(record, run_one(request, cache, match))
    return record


def run_one(request: Request, cache: PrefixCache, match: Match) -> Lease:
    """Compute a request that fits, from its lookup to its end; what was done is in the lease."""
    lease = cache.acquire(request, match)
    if lease is None:
        raise AssertionError(f"{request.request_id} fits, but an idle cache has no room for it")
    _prefill(lease, cache)
    _decode(lease, cache)
    cache.release(lease, finished=True)
    return lease


def _prefill(lease: Lease, cache: PrefixCache) -> None:
    num_prompt_tokens = lease.request.num_prompt_tokens
    for position in lease.checkpoints:
        if position < num_prompt_tokens:
            cache.commit(lease, position)
    cache.commit(lease, num_prompt_tokens)


def _decode(lease: Lease, cache: PrefixCache) -> None:
    """The last generated token is never fed back, so it needs no KV."""
    start, last = lease.request.num_prompt_tokens, lease.request.num_final_tokens
    planned = {position for position in lease.checkpoints if start < position <= last}
    for position in sorted({*planned, last} if last > start else planned):
        if not cache.grow(lease, position):
            raise AssertionError(f"{lease.request.request_id} fits, but an idle cache is full")
        if position in planned:
            cache.commit(lease, position)
