"""The fast search finds the victims that a plain scan of all candidates finds, in that order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_scan import PlainScan, gap_tokens

from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies import EVICTION, make_checkpoint, make_eviction, make_thinning
from hybridsim.policies.base import LAYOUTS, Setting
from hybridsim.request import Request, Spans
from tests.policies.parameters import named

PAGE_BYTES, SLOT_BYTES = 3, 7
pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=1, max_size=5)
traces = st.lists(st.tuples(pairs, pairs | st.just([])), min_size=4, max_size=25)
checkpoints = st.sampled_from(["all_blocks", "prompt_end+branch", {"name": "every", "tokens": 3}])
thinnings = st.none() | st.just({"name": "coverage", "max_states": 3})


def requests_of(trace):
    return [
        Request(str(i), Spans.of(prompt), Spans.of(output), session_id=str(i % 3))
        for i, (prompt, output) in enumerate(trace)
    ]


def watched_cache(requests, eviction, layout, pages, slots, checkpoint, thinning):
    """A cache whose search for victims is held against the plain scan."""
    memory = (
        SharedMemory(PAGE_BYTES, SLOT_BYTES, pages * PAGE_BYTES + slots * SLOT_BYTES)
        if layout == "shared"
        else Memory(PAGE_BYTES, SLOT_BYTES, pages, slots)
    )
    cache = RadixCache(
        memory, 1, make_checkpoint(checkpoint),
        make_eviction(named(eviction) | ({"alpha": 0.5} if eviction == "flop_aware" else {})),
        thinning=make_thinning(thinning),
    )  # fmt: skip
    flops = lambda n, p: 5 * n + n * (n + 2 * p)  # noqa: E731
    rng = np.random.default_rng(1)
    cache.prepare(Setting(requests, PAGE_BYTES, SLOT_BYTES, flops, rng, layout == "shared"))
    cache.residents._victims = PlainScan(cache.residents)
    return cache


def run(cache, requests, choose_start):
    """Serve all, some at the same time: `choose_start()` says whether to start another one."""
    running, waiting = [], [r for r in requests if cache.fits(r)]
    while running or waiting:
        lease = None
        if waiting and (not running or choose_start()):
            lease = cache.acquire(waiting[0], cache.lookup(waiting[0]))
        if lease is not None:
            waiting.pop(0)
            running.append(lease)
            continue
        lease = running.pop(0)
        last = lease.request.num_final_tokens
        is_whole = True
        for position in sorted({*lease.checkpoints, lease.request.num_prompt_tokens, last}):
            is_whole = is_whole and cache.grow(lease, position)
            if is_whole and position in {*lease.checkpoints, lease.request.num_prompt_tokens}:
                cache.commit(lease, position)
        cache.release(lease, finished=is_whole)
        cache.check()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("eviction", EVICTION)
@given(
    trace=traces, pages=st.integers(8, 40), slots=st.integers(2, 9), checkpoint=checkpoints,
    thinning=thinnings, starts=st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_the_search_finds_what_a_plain_scan_finds(
    eviction, layout, trace, pages, slots, checkpoint, thinning, starts
):
    if layout not in EVICTION[eviction].layouts:
        pytest.skip(EVICTION[eviction].refusal)
    requests = requests_of(trace)
    cache = watched_cache(requests, eviction, layout, pages, slots, checkpoint, thinning)
    run(cache, requests, lambda: starts.random() < 0.5)
    for node in cache.tree.nodes():
        assert node.state_gap_tokens == gap_tokens(node)


@pytest.mark.parametrize("eviction", EVICTION)
def test_many_states_of_long_prompts_are_evicted_in_the_same_order(eviction):
    """Prompts of 60 to 300 tokens with a state each two, of which 40 fit: hundreds of victims."""
    rng = np.random.default_rng(5)
    stems = [[(100 * k + i, 20) for i in range(8)] for k in range(3)]
    requests = []
    for number in range(30):
        stem = stems[rng.integers(3)][: rng.integers(1, 9)]
        prompt = Spans.of([*stem, (1000 + int(rng.integers(4)), int(rng.integers(40, 140)))])
        requests.append(Request(str(number), prompt, Spans.unknown(3), session_id=str(number % 4)))
    cache = watched_cache(
        requests, eviction, "split", 500, 41, {"name": "every", "tokens": 2}, None
    )
    run(cache, requests, lambda: rng.random() < 0.4)
    assert cache.residents._victims.num_victims > 500
