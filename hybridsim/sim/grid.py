"""Replays at many capacities over one trie, under any policies: what one pass cannot tell.

Exact at each capacity, request by request: the research cache's own rules and code, with content
compared beforehand. `lru` that touches its whole path has a replay of its own over runs
(`hybridsim.analysis.lockstep`), which is several times faster still.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.lines import Line
from hybridsim.analysis.lockstep import Capacity, GridReplay, lru_grid
from hybridsim.analysis.passes import cached_trie, page_tree
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.policies.base import EvictionPolicy, Setting, Thinning
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.policies.eviction.lru import LRU
from hybridsim.request import Int64Array, Request
from hybridsim.sim.replay import run_one
from hybridsim.sim.setting import setting_for
from hybridsim.sim.trie_cache import TrieCache, trie_paths
from hybridsim.trie import Trie


@dataclass(frozen=True, slots=True)
class MakePolicies:
    """Fresh policies for each capacity, since many learn as they go.

    `setting`: what eviction policies may know beforehand, drawn anew as well.
    """

    checkpoint: Callable[[], CheckpointPolicy]
    eviction: Callable[[], EvictionPolicy] = LRU
    thinning: Callable[[], Thinning | None] = lambda: None
    setting: Callable[[], Setting] | None = None


def policy_grid(
    requests: Sequence[Request],
    rules: CacheRules,
    make: MakePolicies,
    capacities: Sequence[Capacity],
    *,
    trie: Trie | None = None,
) -> GridReplay:
    """Replay at every capacity. UserError where a policy means nothing in a capacity's layout."""
    trie = trie or cached_trie(requests, outputs=rules.outputs)
    eviction = make.eviction()
    if isinstance(eviction, LRU) and eviction.refreshes_path and make.thinning() is None:
        return lru_grid(requests, rules, make.checkpoint, capacities, trie=trie)
    tree = page_tree(trie, requests, rules.page_tokens, caps_last_token=rules.caps_last_token)
    paths = trie_paths(requests, tree, rules.page_tokens, outputs=rules.outputs)
    shape = (len(capacities), len(requests))
    hits, matches = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, capacity in enumerate(capacities):
        cache = TrieCache(
            paths,
            _memory(rules, capacity),
            rules.page_tokens,
            make.checkpoint(),
            make.eviction(),
            compute_last_token=rules.caps_last_token,
            cache_outputs=rules.outputs,
            thinning=make.thinning(),
        )
        if make.setting is not None:
            cache.prepare(make.setting())
        matches[row], hits[row] = _replay(requests, cache)
    return GridReplay(hits, matches, tree.num_prompt_tokens)


def _replay(requests: Sequence[Request], cache: TrieCache) -> Int64Array:
    """Matches and hits in tokens, `[2, num_requests]`; 0 for what never fits."""
    found = np.zeros((2, len(requests)), dtype=np.int64)
    for index, request in enumerate(requests):
        if cache.fits(request):
            match = cache.lookup(request)
            found[:, index] = match.num_match_tokens, match.num_hit_tokens
            run_one(request, cache, match)
    cache.check()
    return found


def _memory(rules: CacheRules, capacity: Capacity) -> Memory:
    page_bytes = rules.page_tokens * rules.kv_bytes_per_token
    if capacity.state_slots is None:
        return SharedMemory(page_bytes, rules.state_bytes, capacity.memory_bytes)
    num_pages = capacity.memory_bytes // page_bytes
    return Memory(page_bytes, rules.state_bytes, num_pages, capacity.state_slots)


def replay_line(
    subject: Subject, line: Line, capacities: Sequence[Capacity], trie: Trie
) -> GridReplay:
    """The replays of one line of a grid."""
    requests, seed = subject.trace.requests, subject.config.seed
    make = MakePolicies(
        line.make_checkpoint,
        line.make_eviction,
        line.make_thinning,
        lambda: setting_for(requests, subject.model, seed, shared=subject.layout == "shared"),
    )
    return policy_grid(requests, subject.rules, make, capacities, trie=trie)
