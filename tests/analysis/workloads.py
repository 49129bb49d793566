"""Small random traces with much sharing, and plain LRU lists that replay them token by token."""

from collections import OrderedDict
from dataclasses import replace
from itertools import pairwise
from math import lcm

import hypothesis.strategies as st
import numpy as np

from hybridsim.analysis.curve import CacheRules
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.errors import UserError
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.policies.base import Setting
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay
from tests.plain import tokens_of

CACHE_RULES = st.builds(
    CacheRules,
    kv_bytes_per_token=st.integers(1, 3),
    state_bytes=st.sampled_from([0, 1, 5, 9]),
    page_tokens=st.sampled_from([1, 2, 3]),
    outputs=st.booleans(),
    caps_last_token=st.booleans(),
)


@st.composite
def traces(draw, max_requests=12, max_tokens=14, grids=(1,), unique_ends=False, min_output=0):
    """Requests whose prompts are cut from, or go on from, what earlier ones said."""
    grid = draw(st.sampled_from(grids))
    said: list[list[int]] = [[]]
    requests = []
    for index in range(draw(st.integers(1, max_requests))):
        base = draw(st.sampled_from(said))
        kept = base[: draw(st.integers(0, len(base)))] if draw(st.booleans()) else base
        fresh = draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
        tail = [1000 + index] if unique_ends else []
        prompt = (kept + fresh)[: max_tokens - len(tail)] + tail
        output = draw(st.lists(st.integers(1, 3), min_size=min_output, max_size=4))
        known = draw(st.booleans())
        said.append(prompt + output if known else prompt)
        request = request_of(index, prompt, output, known, grid)
        requests.append(replace(request, session_id=str(draw(st.integers(0, 2)))))
    return requests


def request_of(index, prompt, output, known=True, grid=1):
    """A request of single tokens."""
    spans = Spans.of([(token, 1) for token in output])
    return Request(
        str(index),
        Spans.of([(token, 1) for token in prompt]),
        spans if known else Spans.unknown(len(output)),
        grid_tokens=grid,
    )


def cached_tokens(request, outputs):
    """What a cache keeps of a request: the last generated token is never fed back."""
    prompt = tokens_of(request.prompt)
    last = request.num_prompt_tokens + max(request.num_output_tokens - 1, 0)
    if outputs and len(prompt) == request.num_prompt_tokens:
        prompt = prompt + tokens_of(request.output)
    return prompt[:last]


class ListLRU:
    """One pool of bytes (or two) as ordered dictionaries, oldest first; the slow, plain truth.

    Objects: ("kv", content up to the page's end), ("state", content up to it).
    """

    def __init__(self, page_tokens, kv_bytes, state_bytes, capacity, slots=None):
        self.page_tokens, self.capacity, self.slots = page_tokens, capacity, slots
        self.sizes = {"kv": kv_bytes * page_tokens, "state": state_bytes}
        self.resident = OrderedDict()
        self.named = set()

    def hit_tokens(self, request, caps_last_token):
        tokens = tuple(tokens_of(request.prompt))
        limit = min(len(tokens), request.num_prompt_tokens - int(caps_last_token))
        hit = 0
        for end in range(self.page_tokens, limit + 1, self.page_tokens):
            if ("kv", tokens[:end]) not in self.resident:
                break
            if not self.sizes["state"] or ("state", tokens[:end]) in self.resident:
                hit = end
        return hit

    def touch(self, request, positions, outputs, refresh="path", hit=0):
        """Everything on the path, deepest first; a state is older than the KV that it ends.

        refresh: `path` touches the states that are there, and those asked for behind the hit;
        `named` those asked for; `again` all that were ever asked for.
        """
        tokens = tuple(cached_tokens(request, outputs))
        asked = {tokens[:position] for position in positions} if self.sizes["state"] else set()
        if refresh == "path":
            there = {key for kind, key in self.resident if kind == "state"}
            asked = there | {key for key in asked if len(key) > hit}
        self.named = self.named | asked if refresh == "again" else asked
        for end in reversed(range(self.page_tokens, len(tokens) + 1, self.page_tokens)):
            if tokens[:end] in self.named:
                self._put(("state", tokens[:end]))
            self._put(("kv", tokens[:end]))
        self._evict()

    def _put(self, key):
        self.resident[key] = None
        self.resident.move_to_end(key)

    def _evict(self):
        if self.slots is None:
            used = sum(self.sizes[kind] for kind, _ in self.resident)
            while used > self.capacity:
                (kind, _), _ = self.resident.popitem(last=False)
                used -= self.sizes[kind]
            return
        for kind, limit in (("kv", self.capacity // self.sizes["kv"]), ("state", self.slots)):
            mine = [key for key in self.resident if key[0] == kind]
            for key in mine[: max(0, len(mine) - limit)]:
                del self.resident[key]


def memory_of(page_bytes, state_bytes, memory_bytes, state_slots):
    """The research cache's memory: one pool of bytes, or KV and slots."""
    if state_slots is None:
        return SharedMemory(page_bytes, state_bytes, memory_bytes)
    return Memory(page_bytes, state_bytes, memory_bytes // page_bytes, state_slots)


def research_cache(rules, capacity, checkpoint, eviction, thinning=None):
    """The research cache for one capacity of a grid."""
    page_bytes = rules.page_tokens * rules.kv_bytes_per_token
    return RadixCache(
        memory_of(page_bytes, rules.state_bytes, capacity.memory_bytes, capacity.state_slots),
        rules.page_tokens, checkpoint, eviction,
        compute_last_token=rules.caps_last_token, cache_outputs=rules.outputs, thinning=thinning,
    )  # fmt: skip


def registry_cache(requests, memory, page_tokens, checkpoint, eviction, **options):
    """Prepared, with policies by name; None where the eviction has no meaning in the layout."""
    try:
        cache = RadixCache(
            memory, page_tokens, make_checkpoint(checkpoint), make_eviction(eviction), **options
        )
    except UserError as refusal:
        if "layout" not in str(refusal):
            raise
        return None
    flops, rng = lambda n, p: float(n + p), np.random.default_rng(0)
    is_shared = memory.layout == "shared"
    cache.prepare(Setting(requests, 1, memory.slot_bytes, flops, rng, is_shared))
    return cache


def found_by(cache, requests):
    """(tokens matched, tokens hit) of each request."""
    records = replay(requests, cache)
    return [(record.num_match_tokens, record.num_hit_tokens) for record in records]


def found_in_rows(grid):
    """The same of a grid, for each capacity."""
    pairs = zip(grid.match_tokens.tolist(), grid.hit_tokens.tolist(), strict=True)
    return [list(zip(matches, hits, strict=True)) for matches, hits in pairs]


def replay_lists(requests, rules, policy, caches, refresh):
    """Hit tokens `[num_caches][num_requests]` of caches side by side, and whether each always
    holds all that the one before it holds."""
    hits, nested = [[] for _ in caches], True
    for request in requests:
        positions = asked_positions(policy, request, rules.page_tokens, rules.outputs)
        for row, cache in zip(hits, caches, strict=True):
            row.append(cache.hit_tokens(request, rules.caps_last_token))
            # Pools that do not look at each other cannot know of a hit, which takes both.
            hit = row[-1] if cache.slots is None else 0
            cache.touch(request, positions, rules.outputs, refresh, hit)
        held = [cache.resident.keys() for cache in caches]
        nested = nested and all(less <= more for less, more in pairwise(held))
    return hits, nested


def list_lru(rules, capacity, slots=None):
    return ListLRU(rules.page_tokens, rules.kv_bytes_per_token, rules.state_bytes, capacity, slots)


def asked_positions(policy, request, page_tokens, outputs):
    """Positions by the cache's documented rule: floored to the grid, at most what is known."""
    from hybridsim.policies.checkpoint.base import PromptView

    last = request.num_prompt_tokens + max(request.num_output_tokens - 1, 0)
    known = len(cached_tokens(request, outputs))
    grid = lcm(page_tokens, request.grid_tokens)
    view = PromptView(request, 0, 0, last, grid)
    return {min(p, known) // grid * grid for p in policy.positions(view)} - {0}
