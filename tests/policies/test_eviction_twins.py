"""Policies with a simple definition, against a twin that ranks single tokens by their history."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workbench import ask, make_cache, prefix

from hybridsim.sim.replay import serve


@dataclass
class History:
    """Ticks of one token's KV: when it came, when requests used it, when it was last held."""

    created: int
    uses: list[int]
    held: int
    user_tokens: int = 0


# Lowest goes first; of equal ones the deepest.
RANKS = {
    "lru": lambda h, end: (h.held,),
    "fifo": lambda h, end: (h.created,),
    "lfu": lambda h, end: (len(h.uses), h.held),
    "slru": lambda h, end: (len(h.uses) >= 2, h.held),
    "lru_k": lambda h, end: (h.uses[-2] if len(h.uses) >= 2 else -1, h.held),
    # needed: the next prompt (user's + 1) without this token computes more than 3
    "tlru": lambda h, end: (h.user_tokens + 1 - (end - 1) > 3, h.held),
}
OPTIONS = {"tlru": {"threshold_tokens": 3, "next_prompt_tokens": 1}}


class Twin:
    """Attention only, page 1: a dict from prefix to history. Every rule the slow way."""

    def __init__(self, capacity, rank):
        self.capacity, self.rank, self.now = capacity, rank, 0
        self.tokens: dict[str, History] = {}

    def serve(self, text):
        path = [text[:n] for n in range(1, len(text) + 1)]
        match = next((i for i, p in enumerate(path) if p not in self.tokens), len(path))
        match = min(match, len(text) - 1)
        self.now += 1
        self.use(path[:match], text)
        locked = set(path[:match])
        while len(self.tokens) + len(text) - match > self.capacity:
            self.evict(locked)
        self.now += 1
        for p in path[match:]:
            if p not in self.tokens:
                self.tokens[p] = History(self.now, [], self.now)
        self.use(path[match:], text)
        self.now += 1
        for p in path:
            self.tokens[p].held = self.now
        return match

    def use(self, path, text):
        for p in path:
            self.tokens[p].uses.append(self.now)
            self.tokens[p].held = self.now
            self.tokens[p].user_tokens = len(text)

    def evict(self, locked):
        inner = {p[:-1] for p in self.tokens}
        leaves = [p for p in self.tokens if p not in inner and p not in locked]
        victim = min(leaves, key=lambda p: (*self.rank(self.tokens[p], len(p)), -len(p)))
        del self.tokens[victim]


texts = st.lists(st.text("abc", min_size=1, max_size=7), min_size=1, max_size=30)


@pytest.mark.parametrize("name", RANKS)
@given(prompts=texts, capacity=st.integers(7, 16))
@settings(max_examples=100)
def test_policy_and_twin_keep_the_same_tokens(name, prompts, capacity):
    requests = [ask(text) for text in prompts]
    eviction = {"name": name, **OPTIONS.get(name, {})}
    cache = make_cache(requests, "none", eviction, pages=capacity, slots=0, state_bytes=0)
    twin = Twin(capacity, RANKS[name])
    for text, request in zip(prompts, requests, strict=True):
        assert serve(request, cache).num_match_tokens == twin.serve(text)
        kept = {prefix(node)[:end] for node in cache.tree.nodes()
                for end in range(node.start + 1, node.end + 1)}  # fmt: skip
        assert kept == set(twin.tokens)
    cache.check()
