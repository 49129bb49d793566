"""Laws that hold for every policy, layout and workload."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.cache.edge import PathKey
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.errors import UserError
from hybridsim.policies import (
    CHECKPOINT,
    EVICTION,
    THINNING,
    make_checkpoint,
    make_eviction,
    make_thinning,
)
from hybridsim.policies.base import LAYOUTS, RankingPolicy, Setting
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay, serve
from tests.plain import num_common, tokens_of
from tests.policies.parameters import named, named_thinning

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=5)
traces = st.lists(st.tuples(pairs, st.integers(0, 4)), min_size=1, max_size=25)
PAGE_BYTES, SLOT_BYTES = 1, 7


def requests_of(trace):
    return [
        Request(str(i), Spans.of(prompt), Spans.unknown(out), session_id=str(i % 3), marks=(2, 5))
        for i, (prompt, out) in enumerate(trace)
    ]


def setting(requests, *, shared=False, page=1):
    return Setting(
        requests, PAGE_BYTES / page, SLOT_BYTES, lambda n, p: 5 * n + n * (n + 2 * p),
        np.random.default_rng(1), shared,
    )  # fmt: skip


def cache_of(memory, requests, checkpoint, eviction, page=1, thinning=None):
    cache = RadixCache(
        memory, page, make_checkpoint(named(checkpoint)), make_eviction(named(eviction)),
        thinning=make_thinning(thinning),
    )  # fmt: skip
    cache.prepare(setting(requests, shared=memory.layout == "shared", page=page))
    return cache


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("eviction", EVICTION)
@pytest.mark.parametrize("checkpoint", CHECKPOINT)
@given(
    trace=traces, pages=st.integers(10, 40), slots=st.integers(1, 6), page=st.sampled_from([1, 2])
)
@settings(max_examples=5)
def test_every_pair_of_policies_keeps_the_laws(
    checkpoint, eviction, layout, trace, pages, slots, page
):
    capacity = pages + SLOT_BYTES * slots
    memory = (
        SharedMemory(PAGE_BYTES, SLOT_BYTES, capacity)
        if layout == "shared"
        else Memory(PAGE_BYTES, SLOT_BYTES, pages, slots)
    )
    requests = requests_of(trace)
    if layout not in EVICTION[eviction].layouts:
        with pytest.raises(UserError, match=EVICTION[eviction].refusal):
            cache_of(memory, requests, checkpoint, eviction)
        return
    cache = cache_of(memory, requests, checkpoint, eviction, page)
    for record in replay(requests, cache):  # replay runs cache.check()
        assert 0 <= record.num_hit_tokens <= record.num_match_tokens
        assert record.num_match_tokens <= max(record.num_prompt_tokens - 1, 0)
    assert max(cache.usage().peak_kv_bytes, cache.usage().peak_state_bytes) <= capacity


@pytest.mark.parametrize("eviction", EVICTION)
@given(trace=traces, pages=st.integers(20, 40), slots=st.integers(2, 5), data=st.data())
@settings(max_examples=20)
def test_requests_that_run_together_keep_the_laws(eviction, trace, pages, slots, data):
    """Started and finished in any order; whoever used KV last really has that KV as a prefix."""
    requests = requests_of(trace)
    cache = cache_of(Memory(PAGE_BYTES, SLOT_BYTES, pages, slots), requests, "every", eviction)
    running, waiting = [], [r for r in requests if cache.fits(r)]
    while running or waiting:
        if waiting and (not running or data.draw(st.booleans())):
            lease = cache.acquire(waiting[0], cache.lookup(waiting[0]))
            if lease is not None:
                running.append(lease)
                waiting.pop(0)
            elif not running:
                raise AssertionError("an idle cache has no room for what fits")
        if running and (not waiting or data.draw(st.booleans())):
            lease = running.pop(data.draw(st.integers(0, len(running) - 1)))
            for position in sorted({*lease.checkpoints, lease.request.num_prompt_tokens}):
                if position <= lease.request.num_prompt_tokens:
                    cache.commit(lease, position)
            cache.release(lease, finished=True)
        cache.check()
        for node in cache.tree.nodes():
            walk = cache.tree.walk(PathKey(node.last_user.prompt, 1))
            assert node in (*walk.nodes, walk.partial)


@pytest.mark.parametrize("eviction", EVICTION)
@given(trace=traces)
@settings(max_examples=10)
def test_without_evictions_the_eviction_policy_changes_nothing(eviction, trace):
    requests = requests_of(trace)
    hits = [
        [r.num_hit_tokens for r in replay(requests, cache_of(
            Memory(PAGE_BYTES, SLOT_BYTES, None, None), requests, "all_blocks", name))]
        for name in (eviction, "lru")
    ]  # fmt: skip
    assert hits[0] == hits[1]


@pytest.mark.parametrize("thinning", THINNING)
@pytest.mark.parametrize("checkpoint", ["all_blocks", "prompt_end", "branch"])
@given(trace=traces, slots=st.integers(1, 12))
@settings(max_examples=15)
def test_thinning_keeps_the_laws_and_its_own_cap(thinning, checkpoint, trace, slots):
    requests = requests_of(trace)
    rule = named_thinning(thinning)
    cache = cache_of(
        Memory(PAGE_BYTES, SLOT_BYTES, None, slots), requests, checkpoint, "lru", 1, rule
    )
    thin = cache.checkpoints._thin

    def watched(rule, lease, node):
        """The cap is that of the path down to the state just saved; deeper ones are not asked."""
        thin(rule, lease, node)
        states = [step for step in node.path() if step.has_state]
        # Only what some rule exempts may exceed the cap: forks, prompt ends, locked states.
        spare = [
            step
            for step in states
            if step is not node
            and step.num_children == 1
            and not step.state_locks
            and step.state_source != "prompt_end"
        ]
        assert len(states) <= 2 or not spare

    cache.checkpoints._thin = watched
    replay(requests, cache)


@pytest.mark.parametrize("name", EVICTION)
def test_a_policy_names_its_source_and_a_reason_for_each_refusal(name):
    policy = EVICTION[name]
    assert policy.source
    assert set(policy.layouts) <= set(LAYOUTS)
    assert bool(policy.refusal) == (set(policy.layouts) != set(LAYOUTS))


@pytest.mark.parametrize("checkpoint", CHECKPOINT)
@given(trace=traces, pages=st.integers(10, 40), slots=st.integers(1, 6))
@settings(max_examples=25)
def test_hybrid_never_beats_attention_only_at_equal_kv(checkpoint, trace, pages, slots):
    """KV is touched along the whole path whatever the states do, so both keep the same KV."""
    requests = requests_of(trace)
    hybrid = replay(requests, cache_of(Memory(1, 7, pages, slots), requests, checkpoint, "lru"))
    attention = replay(requests, cache_of(Memory(1, 0, pages, 0), requests, checkpoint, "lru"))
    for one, other in zip(hybrid, attention, strict=True):
        assert one.num_match_tokens == other.num_match_tokens
        assert one.num_hit_tokens <= other.num_hit_tokens


@given(trace=traces)
@settings(max_examples=50)
def test_unlimited_memory_with_a_state_everywhere_reaches_the_attention_only_ideal(trace):
    requests = requests_of(trace)
    cache = RadixCache(
        Memory(1, 7, None, None), 1, make_checkpoint("all_blocks"), make_eviction("lru")
    )
    seen: list[tuple] = []
    for request, record in zip(requests, replay(requests, cache), strict=True):
        tokens = tokens_of(request.prompt)
        best = max((num_common(tokens, other) for other in seen), default=0)
        assert record.num_hit_tokens == min(best, len(tokens) - 1)
        seen.append(tokens)


RANKED = [name for name in EVICTION if issubclass(EVICTION[name], RankingPolicy)]


@pytest.mark.parametrize("name", [n for n in RANKED if not EVICTION[n].may_fall])
@given(trace=traces, pages=st.integers(10, 30), slots=st.integers(1, 4))
@settings(max_examples=20)
def test_a_priority_never_falls_while_its_object_lives(name, trace, pages, slots):
    """Seen from outside: after each request, of all that is still there from before it."""
    requests = requests_of(trace)
    cache = cache_of(Memory(PAGE_BYTES, SLOT_BYTES, pages, slots), requests, "every", name)
    policy = cache.residents.eviction
    before = {}
    for request in requests:
        if not cache.fits(request):
            continue
        serve(request, cache)
        after = {}
        for node in cache.tree.nodes():
            if not node.children:
                after[node, node.created, "kv"] = policy.kv_priority(node)
            if node.has_state:
                after[node, node.state_created, "state"] = policy.state_priority(node)
        assert all(after[key] >= before[key] for key in after.keys() & before.keys())
        before = after
