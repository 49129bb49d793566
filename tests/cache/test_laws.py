"""Laws that hold for every policy, layout and workload."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies import CHECKPOINT, EVICTION, make_checkpoint, make_eviction
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay

pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=5)
traces = st.lists(st.tuples(pairs, st.integers(0, 4)), min_size=1, max_size=25)
NEEDS = {"every": {"tokens": 3}}


def requests_of(trace):
    return [
        Request(str(i), Spans.of(prompt), Spans.unknown(out))
        for i, (prompt, out) in enumerate(trace)
    ]


def named(name):
    return {"name": name, **NEEDS.get(name, {})}


@pytest.mark.parametrize("eviction", EVICTION)
@pytest.mark.parametrize("checkpoint", CHECKPOINT)
@given(trace=traces, pages=st.integers(10, 40), slots=st.integers(1, 6), shared=st.booleans(),
       page=st.sampled_from([1, 2]))  # fmt: skip
@settings(max_examples=15)
def test_every_pair_of_policies_keeps_the_laws(
    checkpoint, eviction, trace, pages, slots, shared, page
):
    memory = SharedMemory(1, 7, pages + 7 * slots) if shared else Memory(1, 7, pages, slots)
    cache = RadixCache(memory, page, make_checkpoint(named(checkpoint)), make_eviction(eviction))
    for record in replay(requests_of(trace), cache):  # replay runs cache.check()
        assert 0 <= record.num_hit_tokens <= record.num_match_tokens
        assert record.num_match_tokens <= max(record.num_prompt_tokens - 1, 0)
    assert cache.usage().peak_kv_bytes <= pages + 7 * slots


@pytest.mark.parametrize("checkpoint", CHECKPOINT)
@given(trace=traces, pages=st.integers(10, 40), slots=st.integers(1, 6))
@settings(max_examples=25)
def test_hybrid_never_beats_attention_only_at_equal_kv(checkpoint, trace, pages, slots):
    """KV is touched along the whole path whatever the states do, so both keep the same KV."""
    requests = requests_of(trace)
    policy = make_checkpoint(named(checkpoint))
    hybrid = replay(
        requests, RadixCache(Memory(1, 7, pages, slots), 1, policy, make_eviction("lru"))
    )
    attention = replay(
        requests, RadixCache(Memory(1, 0, pages, 0), 1, policy, make_eviction("lru"))
    )
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
        tokens = [
            (int(i), o) for i, s, e in zip(request.prompt.ids, [0, *request.prompt.ends[:-1]],
                                           request.prompt.ends, strict=True) for o in range(e - s)
        ]  # fmt: skip
        best = max((_common(tokens, other) for other in seen), default=0)
        assert record.num_hit_tokens == min(best, len(tokens) - 1)
        seen.append(tokens)


def _common(left, right) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
                min(len(left), len(right)))  # fmt: skip


@pytest.mark.parametrize("name", EVICTION)
def test_a_priority_never_falls_when_its_object_is_used_or_trimmed(name):
    class Item:
        created = state_created = kv_access = state_access = 3
        num_touches = num_state_touches = 2
        start, end = 0, 8

    policy = EVICTION[name]()
    item = Item()
    before = policy.kv_priority(item), policy.state_priority(item)
    item.kv_access = item.state_access = 5
    item.num_touches = item.num_state_touches = 3
    used = policy.kv_priority(item), policy.state_priority(item)
    item.end = 4
    trimmed = policy.kv_priority(item), policy.state_priority(item)
    assert before[0] <= used[0] <= trimmed[0]
    assert before[1] <= used[1] <= trimmed[1]
