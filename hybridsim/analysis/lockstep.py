"""LRU replays at a grid of capacities over one trie, for what one pass cannot tell.

Exact at the grid's points, request by request, under the research cache's own rules: pinning, a
slot for the running state, requests that do not fit, states kept only where the policy asks for
them at that capacity. So any checkpoint policy goes, `branch` included. Eviction is `lru` with the
whole path refreshed; `hybridsim.sim.grid` takes thinning and all others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import lcm

import numpy as np

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.frontier import Frontier
from hybridsim.analysis.passes import NEVER, PathTree, all_passes, cached_trie, page_tree
from hybridsim.analysis.room import BoolArray
from hybridsim.analysis.visit import Pools, Visit
from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.request import Int64Array, Request
from hybridsim.trie import Trie


@dataclass(frozen=True, slots=True)
class Capacity:
    """Shared: `memory_bytes` alone. Split: bytes for KV, and slots for states."""

    memory_bytes: int
    state_slots: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GridReplay:
    """`hit_tokens`, `match_tokens`: int64, `[num_capacities, num_requests]`."""

    hit_tokens: Int64Array
    match_tokens: Int64Array
    num_prompt_tokens: Int64Array

    def token_hit_rate(self, num_warmup: int = 0) -> np.ndarray:
        """A rate a capacity, over the requests from `num_warmup` on."""
        total = max(int(self.num_prompt_tokens[num_warmup:].sum()), 1)
        return np.asarray(self.hit_tokens[:, num_warmup:].sum(axis=1) / total)


def lru_grid(
    requests: Sequence[Request],
    rules: CacheRules,
    make_policy: Callable[[], CheckpointPolicy],
    capacities: Sequence[Capacity],
    *,
    trie: Trie | None = None,
) -> GridReplay:
    """Replay at every capacity; O(capacities x (runs + checkpoints)), the trie is paid once.

    make_policy: a fresh checkpoint policy for each capacity, since some learn as they go.
    """
    trie = trie or cached_trie(requests, outputs=rules.outputs)
    tree = page_tree(trie, requests, rules.page_tokens, caps_last_token=rules.caps_last_token)
    shape = (len(capacities), len(requests))
    hits, matches = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    visits_of: dict[bytes, tuple[Int64Array, list[Visit]]] = {}
    finals = np.array([request.num_final_tokens for request in requests], dtype=np.int64)
    for row, capacity in enumerate(capacities):
        pools = _pools(rules, capacity)
        fits = _fits(pools, finals)
        if fits.tobytes() not in visits_of:
            served = np.flatnonzero(fits)
            visits = _visits(requests, rules, tree, served) if len(served) else []
            visits_of[fits.tobytes()] = served, visits
        served, visits = visits_of[fits.tobytes()]
        if not visits:
            continue
        found = _replay([requests[int(i)] for i in served], rules, make_policy(), pools, visits)
        matches[row, served], hits[row, served] = found * rules.page_tokens
    return GridReplay(hits, matches, tree.num_prompt_tokens)


def _replay(
    requests: Sequence[Request],
    rules: CacheRules,
    policy: CheckpointPolicy,
    pools: Pools,
    visits: Sequence[Visit],
) -> Int64Array:
    """Matches and hits in pages, `[2, num_requests]`."""
    cache = Frontier(pools, len(requests))
    found = np.zeros((2, len(requests)), dtype=np.int64)
    for index, (request, visit) in enumerate(zip(requests, visits, strict=True)):
        match, hit = cache.lookup(visit)
        found[:, index] = match, hit
        positions: list[int] = []
        if pools.is_hybrid:
            positions = _positions(request, visit, rules, policy, match, hit)
        cache.serve(index, visit, match, hit, positions)
    return found


def _positions(
    request: Request,
    visit: Visit,
    rules: CacheRules,
    policy: CheckpointPolicy,
    match: int,
    hit: int,
) -> list[int]:
    page = rules.page_tokens
    grid = lcm(page, request.grid_tokens)
    view = PromptView(request, hit * page, match * page, visit.final_tokens, grid)
    return policy.positions_on_grid(view, visit.known_tokens)


def _pools(rules: CacheRules, capacity: Capacity) -> Pools:
    page_bytes = rules.kv_bytes_per_token * rules.page_tokens
    is_hybrid = rules.state_bytes > 0
    if capacity.state_slots is None:
        return Pools(
            rules.page_tokens, page_bytes, rules.state_bytes, capacity.memory_bytes, None, is_hybrid
        )
    num_pages = capacity.memory_bytes // page_bytes
    return Pools(rules.page_tokens, 1, 0, num_pages, capacity.state_slots, is_hybrid)


def _fits(pools: Pools, final_tokens: Int64Array) -> BoolArray:
    """Which requests could run in an empty cache."""
    pages = -(-final_tokens // pools.page_tokens)
    if not pools.holds(0, int(pools.is_hybrid)):
        return np.zeros(len(pages), dtype=bool)
    return np.asarray(pages * pools.page + int(pools.is_hybrid) * pools.state <= pools.capacity)


def fitting(requests: Sequence[Request], rules: CacheRules, capacity: Capacity) -> BoolArray:
    """`[num_requests]`: which requests could run in an empty cache; a replay refuses the others."""
    finals = np.array([request.num_final_tokens for request in requests], dtype=np.int64)
    return _fits(_pools(rules, capacity), finals)


def num_refused(requests: Sequence[Request], rules: CacheRules, capacity: Capacity) -> int:
    """How many requests no empty cache of this capacity takes."""
    return int((~fitting(requests, rules, capacity)).sum())


def _visits(
    requests: Sequence[Request], rules: CacheRules, tree: PathTree, served: Int64Array
) -> list[Visit]:
    """The runs of each request if only `served` ones touch the cache."""
    part = PathTree(
        tree.parent,
        tree.start,
        tree.end,
        tree.unit_tokens,
        tree.prompt_node[served],
        tree.last_node[served],
        tree.limit[served],
        tree.num_prompt_tokens[served],
    )
    passes = all_passes(part)
    starts = passes.run_starts()
    last_pass = np.append(starts[1:], len(passes.node)) - 1
    kept = passes.previous[starts] != NEVER
    owners = passes.previous[starts][kept].tolist()
    cuts = part.end[passes.node[last_pass]][kept].tolist()
    first = np.searchsorted(passes.request[starts][kept], np.arange(len(served) + 1)).tolist()
    visits = []
    for index, original in enumerate(served.tolist()):
        rows = slice(first[index], first[index + 1])
        runs = tuple(zip(owners[rows], cuts[rows], strict=True))
        visits.append(_visit(requests[original], rules, runs, int(part.limit[index])))
    return visits


def _visit(
    request: Request, rules: CacheRules, runs: tuple[tuple[int, int], ...], limit: int
) -> Visit:
    page = rules.page_tokens
    final = request.num_final_tokens
    prompt_known = known = request.prompt.num_known_tokens
    if rules.outputs and known == request.num_prompt_tokens:
        known = min(known + request.output.num_known_tokens, final)
    return Visit(
        runs=runs,
        limit=limit,
        prompt_known=prompt_known // page,
        known=known // page,
        prompt=-(-request.num_prompt_tokens // page),
        prompt_tokens=request.num_prompt_tokens,
        known_tokens=known,
        final_tokens=final,
    )
