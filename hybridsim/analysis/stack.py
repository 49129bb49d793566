"""Mattson's stack in runs: how much memory an object needs to survive from touch to touch.

All requests touch their whole path, root most recent, so the stack is a list of runs: what request
r still owns is the lower end of its own path, since later requests can only have taken its top.
Hence for an object at depth z whose last toucher is r, the bytes at least as recent as it are
`S(r) + w_r(z)`: all that requests after r own, plus what r owns down to z.
"""

from dataclasses import dataclass

import numpy as np

from hybridsim.analysis.passes import NEVER, Passes
from hybridsim.request import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Something that requests do to owners, in request order: `request`, `owner`, and `size`.

    An owner of NEVER is nobody. int64, `[num_events]`.
    """

    request: Int64Array
    owner: Int64Array
    size: Int64Array


def stack_distances(passes: Passes, before: Int64Array, after: Int64Array) -> Int64Array:
    """Bytes at least as recent as the end of each pass's node, just before the request comes.

    States are touched along with the KV of the path. before, after, `[num_passes]`: what the node
    holds before and after this request (states that it names are new). 0 for passes that nobody
    made before. O(runs log requests).
    """
    starts = passes.run_starts()
    counts = np.diff(np.append(starts, len(before)))
    in_run, totals = along_runs(before, starts)
    runs = Events(passes.request[starts], passes.previous[starts], totals)
    gained = np.bincount(passes.request, after, passes.num_requests)
    newer = newer_bytes(runs, runs, np.rint(gained).astype(np.int64))
    return np.where(passes.previous == NEVER, 0, in_run + np.repeat(newer, counts))


def named_distances(
    passes: Passes, kv_bytes: Int64Array, state_bytes: int, named: np.ndarray
) -> Int64Array:
    """The same for the state at the end of each pass's node, where only a naming touches a state.

    named, `[num_passes]` bool: the request asks for a state at the node's end. A state is as old as
    its last naming, its KV may be younger; so the state's distance covers that of its KV. 0 for
    passes whose node nobody named before. O((runs + passes with a state) log requests).
    """
    namer = previous_namer(passes, named)
    starts = passes.run_starts()
    in_run, totals = along_runs(kv_bytes, starts)
    asked = np.flatnonzero(namer != NEVER)
    again = asked[named[asked]]
    losses = [
        Events(passes.request[starts], passes.previous[starts], totals),
        Events(passes.request[again], namer[again], np.full(len(again), state_bytes)),
    ]
    gained = np.bincount(passes.request, kv_bytes + state_bytes * named, passes.num_requests)
    queries = Events(passes.request[asked], namer[asked], asked)
    newer = newer_bytes(queries, _merged(losses), np.rint(gained).astype(np.int64))
    own_kv = np.where(passes.previous[asked] == namer[asked], in_run[asked], 0)
    distances = np.zeros(len(named), dtype=np.int64)
    distances[asked] = newer + own_kv + state_bytes * _rank(queries)
    return distances


def previous_namer(passes: Passes, named: np.ndarray) -> Int64Array:
    """For each pass the last request before it that named the node, or NEVER, `[num_passes]`."""
    order = np.argsort(passes.node, kind="stable")
    place = np.arange(len(order))
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = passes.node[order][1:] != passes.node[order][:-1]
    first = np.maximum.accumulate(np.where(begins, place, 0))
    latest = np.maximum.accumulate(np.where(named[order], place, NEVER))
    before = np.concatenate([[NEVER], latest[:-1]])
    namer = np.full(len(order), NEVER, dtype=np.int64)
    namer[order] = np.where(before >= first, passes.request[order[before]], NEVER)
    return namer


def along_runs(sizes: Int64Array, starts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Sums from each run's top down to each pass, `[num_passes]`, and whole, `[num_runs]`."""
    sums = np.concatenate([[0], np.cumsum(sizes)])
    bounds = np.append(starts, len(sizes))
    totals = sums[bounds[1:]] - sums[starts]
    return sums[1:] - np.repeat(sums[starts], np.diff(bounds)), totals


def newer_bytes(queries: Events, losses: Events, gained: Int64Array) -> Int64Array:
    """For each query the bytes that requests after its owner own when its request comes.

    losses: what a request takes from earlier owners; gained, `[num_requests]`: what it owns then.
    A Fenwick tree over requests.
    """
    tree = [0] * (len(gained) + 1)
    total = 0
    newer: list[int] = []
    bounds_q = _bounds(queries, len(gained))
    bounds_l = _bounds(losses, len(gained))
    asked = queries.owner.tolist()
    lost = list(zip(losses.owner.tolist(), losses.size.tolist(), strict=True))
    for request, gain in enumerate(gained.tolist()):
        for owner in asked[bounds_q[request] : bounds_q[request + 1]]:
            at, older = owner + 1, 0
            while at > 0:
                older += tree[at]
                at &= at - 1
            newer.append(total - older)
        for owner, size in lost[bounds_l[request] : bounds_l[request + 1]]:
            if owner != NEVER:
                total -= size
                _add(tree, owner + 1, -size)
        total += gain
        _add(tree, request + 1, gain)
    return np.array(newer, dtype=np.int64)


def _add(tree: list[int], at: int, amount: int) -> None:
    size = len(tree)
    while at < size:
        tree[at] += amount
        at += at & -at


def _bounds(events: Events, num_requests: int) -> list[int]:
    """Where each request's events begin; the last entry is their number."""
    return list(np.searchsorted(events.request, np.arange(num_requests + 1)).tolist())


def _merged(parts: list[Events]) -> Events:
    """All events in request order."""
    request = np.concatenate([part.request for part in parts])
    order = np.argsort(request, kind="stable")
    owner = np.concatenate([part.owner for part in parts])[order]
    return Events(request[order], owner, np.concatenate([part.size for part in parts])[order])


def _rank(queries: Events) -> Int64Array:
    """1, 2, ... for the queries of a request that share an owner, from the top down."""
    order = np.lexsort((np.arange(len(queries.owner)), queries.owner, queries.request))
    request, owner = queries.request[order], queries.owner[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (request[1:] != request[:-1]) | (owner[1:] != owner[:-1])
    place = np.arange(len(order))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = place - np.maximum.accumulate(np.where(begins, place, 0)) + 1
    return rank
