"""Lost tokens: worked examples of every reason, and the sum that must come out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.analysis.passes import cached_trie
from hybridsim.cache.base import Match
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.records import MissReason
from hybridsim.request import Request, Spans
from hybridsim.sim.admission import losses
from hybridsim.sim.replay import replay

# An infinite cache would hit 100 tokens in every row. Columns: match, hit, position of a state
# that was evicted since, first fork?, page, grid; then the tokens lost by reason.
ROWS = [
    (100, 100, 0, False, 1, 1, {}),
    (100, 40, 0, False, 1, 1, {MissReason.IN_UNIQUE_TOKENS: 60}),
    (100, 40, 0, True, 1, 1, {MissReason.FIRST_FORK: 60}),
    (100, 40, 90, False, 1, 1, {MissReason.STATE_EVICTED: 50, MissReason.IN_UNIQUE_TOKENS: 10}),
    (70, 70, 0, False, 1, 1, {MissReason.KV_EVICTED: 30}),
    (0, 0, 0, False, 1, 1, {MissReason.KV_EVICTED: 100}),
    # 96 is the last page of 16 below 100, and a state can lie at multiples of 64 only
    (96, 96, 0, False, 16, 64, {MissReason.ALIGNMENT: 4}),
    (96, 0, 0, False, 16, 64, {MissReason.IN_UNIQUE_TOKENS: 64, MissReason.ALIGNMENT: 36}),
    (96, 64, 0, True, 16, 64, {MissReason.ALIGNMENT: 36}),
    (48, 0, 0, False, 16, 64, {MissReason.ALIGNMENT: 52, MissReason.KV_EVICTED: 48}),
]


@pytest.mark.parametrize(("match", "hit", "once", "fork", "page", "grid", "expected"), ROWS)
def test_losses_by_hand(match, hit, once, fork, page, grid, expected):
    found = Match(match, hit, num_once_tokens=once, is_first_fork=fork, page_tokens=page,
                  grid_tokens=grid)  # fmt: skip
    assert losses(found, 100) == expected


def test_where_no_states_are_saved_nobody_looks_for_them():
    """Not first_fork, though nobody parted here before: the next request would find none either."""
    found = Match(100, 0, is_first_fork=True, saves_states=False, page_tokens=16, grid_tokens=64)
    assert losses(found, 100) == {MissReason.NEVER_SAVED: 64, MissReason.ALIGNMENT: 36}
    memory = Memory(1, 5, 60, 4)
    cache = RadixCache(memory, 1, make_checkpoint("none"), make_eviction("lru"))
    requests = [Request(str(i), Spans.of([(0, 8), (i, 4)]), Spans.unknown(1)) for i in range(3)]
    records = replay(requests, cache, [0, 8, 8])
    assert [r.lost_tokens for r in records] == [{}, *[{MissReason.NEVER_SAVED: 8}] * 2]
    assert [r.miss_reason for r in records] == ["cold", "never_saved", "never_saved"]


pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=5)


@given(
    trace=st.lists(st.tuples(pairs, pairs, st.booleans()), min_size=1, max_size=25),
    pages=st.integers(20, 60),
    slots=st.integers(0, 4),
    page=st.sampled_from([1, 2, 4]),
    checkpoint=st.sampled_from(["none", "prompt_end", "turn_end", "branch", "all_blocks"]),
)
@settings(max_examples=100)
def test_losses_add_up_to_ideal_minus_hit(trace, pages, slots, page, checkpoint):
    requests = [
        Request(str(i), Spans.of(prompt), Spans.of(output) if known else Spans.unknown(2))
        for i, (prompt, output, known) in enumerate(trace)
    ]
    ideal = cached_trie(requests, outputs=True).match_tokens
    memory = Memory(1, 5 if slots else 0, pages, slots)
    cache = RadixCache(memory, page, make_checkpoint(checkpoint), make_eviction("lru"))
    capped = [min(int(i), r.num_prompt_tokens - 1) for i, r in zip(ideal, requests, strict=True)]
    for record, most in zip(replay(requests, cache, capped), capped, strict=True):
        if record.miss_reason != MissReason.REFUSED:
            assert sum(record.lost_tokens.values()) == most - record.num_hit_tokens
            assert all(lost > 0 for lost in record.lost_tokens.values())
            assert (record.miss_reason == MissReason.COLD) == (most == 0)
