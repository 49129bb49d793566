"""Belady against an exhaustive search on small traces, and against published optimal rates."""

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.cache.block_belady import BlockBelady
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.metrics import summarise
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.policies.base import Setting
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace

# Optimal token hit rates of kvcache-simulator 0.1.3 on the second half of the conversation trace:
# ../shared/spec/policies-and-bounds.md, section 5. From 8192 blocks on the ceiling is reached.
OPTIMAL = {1024: 0.19902, 2048: 0.26837, 4096: 0.34532, 8192: 0.39811, 65536: 0.39811}

prompts = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=6)


def requests_of(texts):
    return [
        Request(str(i), Spans.of([(ord(c), 1) for c in text]), Spans.unknown(0))
        for i, text in enumerate(texts)
    ]


def best_hits(texts, capacity, *, bypass):
    """Most tokens that any choice of what to keep can hit: all subsets are tried.

    What is kept after a request is a set of prefixes closed upwards, of what was there and the
    prompt's own. Without bypass the whole prompt has to be there when the request ends.
    """

    @cache
    def best(index, kept):
        if index == len(texts):
            return 0
        text = texts[index]
        path = frozenset(text[:n] for n in range(1, len(text) + 1))
        hit = next((n - 1 for n in range(1, len(text) + 1) if text[:n] not in kept), len(text))
        there = sorted(kept | path)
        choices = (
            frozenset(chosen)
            for size in range(min(capacity, len(there)) + 1)
            for chosen in combinations(there, size)
        )
        return hit + max(
            best(index + 1, chosen)
            for chosen in choices
            if all(len(p) == 1 or p[:-1] in chosen for p in chosen)
            and (bypass or path <= chosen)
        )  # fmt: skip

    return best(0, frozenset())


@given(texts=prompts, capacity=st.integers(4, 6))
@settings(max_examples=60)
def test_belady_is_optimal_on_unit_pages_without_states(texts, capacity):
    requests = requests_of(texts)
    cache = RadixCache(
        Memory(1, 0, capacity, 0), 1, make_checkpoint("none"), make_eviction("belady"),
        compute_last_token=False,
    )  # fmt: skip
    cache.prepare(Setting(requests, 1, 0, lambda n, p: n, np.random.default_rng(0)))
    hits = sum(record.num_hit_tokens for record in replay(requests, cache))
    assert hits == best_hits(texts, capacity, bypass=False)


@given(texts=prompts, capacity=st.integers(1, 5))
@settings(max_examples=60)
def test_block_belady_is_optimal_with_bypass(texts, capacity):
    requests = requests_of(texts)
    cache = BlockBelady(requests, capacity)
    hits = sum(cache.serve(request).num_hit_tokens for request in requests)
    cache.check()
    assert hits == best_hits(texts, capacity, bypass=True)


@pytest.fixture(scope="module")
def conversation(shared_dir):
    return read_trace(shared_dir / "traces" / "mooncake_conversation.jsonl", "mooncake").requests


@pytest.mark.parametrize(("num_blocks", "expected"), OPTIMAL.items())
def test_block_belady_gives_the_published_optimum(conversation, num_blocks, expected):
    cache = BlockBelady(conversation, num_blocks)
    records = [cache.serve(request) for request in conversation]
    cache.check()
    assert summarise(records, warmup=0.5)["token_hit_rate"] == pytest.approx(expected, abs=5e-6)
