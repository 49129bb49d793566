"""Mattson's stack in runs: how much memory an object needs to survive from touch to touch.

All requests touch their whole path, root most recent, so the stack is a list of runs: what request
r still owns is the lower end of its own path, since later requests can only have taken its top.
Hence for an object at depth z whose last toucher is r, the bytes at least as recent as it are
`S(r) + w_r(z)`: all that requests after r own, plus what r owns down to z.
"""

import numpy as np

from hybridsim.analysis.passes import NEVER, Passes
from hybridsim.request import Int64Array


def stack_distances(passes: Passes, before: Int64Array, after: Int64Array) -> Int64Array:
    """Bytes at least as recent as the end of each pass's node, just before the request comes.

    before, after, `[num_passes]`: what the node holds before and after this request (states that
    it names are new). 0 for passes that nobody made before. O((runs) log(requests)).
    """
    starts = passes.run_starts()
    bounds = np.append(starts, len(before))
    sums = np.concatenate([[0], np.cumsum(before)])
    gains = np.concatenate([[0], np.cumsum(after)])
    newer = _newer(
        passes.request[starts],
        passes.previous[starts],
        sums[bounds[1:]] - sums[starts],
        gains[bounds[1:]] - gains[starts],
        passes.num_requests,
    )
    distances = sums[1:] + np.repeat(newer - sums[starts], np.diff(bounds))
    return np.where(passes.previous == NEVER, 0, distances)


def _newer(
    request: Int64Array, owner: Int64Array, before: Int64Array, after: Int64Array, count: int
) -> Int64Array:
    """For each run the bytes that requests after its owner own: a Fenwick tree over requests."""
    tree = [0] * (count + 1)
    total, moved, current = 0, 0, NEVER
    newer = []
    pending: list[tuple[int, int]] = []
    rows = (request.tolist(), owner.tolist(), before.tolist(), after.tolist())
    for now, last, lost, gained in zip(*rows, strict=True):
        if now != current:
            total += _move(tree, pending, current, moved)
            pending, moved, current = [], 0, now
        at, older = last + 1, 0
        while at > 0:
            older += tree[at]
            at &= at - 1
        newer.append(total - older)
        pending.append((last, lost))
        moved += gained
    return np.array(newer, dtype=np.int64)


def _move(tree: list[int], lost: list[tuple[int, int]], to: int, gained: int) -> int:
    """Take bytes from their owners, give bytes to the request that came; returns the growth."""
    if to == NEVER:
        return 0
    growth, size = gained, len(tree)
    for owner, num_bytes in lost:
        if owner == NEVER:
            continue
        growth -= num_bytes
        at = owner + 1
        while at < size:
            tree[at] -= num_bytes
            at += at & -at
    at = to + 1
    while at < size:
        tree[at] += gained
        at += at & -at
    return growth
