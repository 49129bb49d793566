"""The cache by hand-worked examples. Sizes: page 1, a page is 1 byte, a state is 10 bytes."""

import pytest

from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.records import HitSource
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay, serve

IDS = {name: number for number, name in enumerate("abcdefghijklmnopqrstuvwxyz")}


def ask(prompt: str, output: str | int = 1, **kwargs) -> Request:
    """`ask("a8 b4", "c2")`: 8 tokens of segment a, then 4 of b; the answer is 2 of c."""

    def spans(text):
        return Spans.of([(IDS[part[0]], int(part[1:])) for part in text.split()])

    out = Spans.unknown(output) if isinstance(output, int) else spans(output)
    return Request(prompt, spans(prompt), out, **kwargs)


def cache(checkpoint="prompt_end", *, pages=None, slots=None, page=1, eviction="lru", memory=None,
          **kwargs):  # fmt: skip
    memory = memory or Memory(1, 10, pages, slots)
    return RadixCache(memory, page, make_checkpoint(checkpoint), make_eviction(eviction), **kwargs)


def hits(requests, one_cache):
    return [record.num_hit_tokens for record in replay(requests, one_cache)]


def test_a_hit_needs_a_state_exactly_there():
    # The state is kept at 8. The second prompt matches 6 tokens of KV, where no state is.
    records = replay([ask("a8"), ask("a6 b4"), ask("a8 c4")], cache())
    assert [(r.num_match_tokens, r.num_hit_tokens) for r in records] == [(0, 0), (6, 0), (8, 8)]
    assert records[2].hit_source == HitSource.PROMPT_END


def test_an_attention_only_model_reuses_every_matched_token():
    memory = Memory(1, 0, None, None)
    assert hits([ask("a8"), ask("a6 b4"), ask("a8 c4")], cache("none", memory=memory)) == [0, 6, 8]


def test_the_last_prompt_token_is_always_computed():
    # The same prompt again: the only state is at 8, one token too deep; at most 7 may be reused.
    requests = [ask("a8"), ask("a8"), ask("a8 b1")]
    assert hits(requests, cache()) == [0, 0, 8]
    assert hits(requests, cache("all_blocks")) == [0, 7, 8]
    assert hits(requests, cache(compute_last_token=False)) == [0, 8, 8]


def test_pages_floor_matches_and_checkpoints():
    # Page 4: the state of a 10-token prompt is kept at 8; 11 shared tokens match 8.
    records = replay([ask("a10"), ask("a10 b1 c5"), ask("a10 b1 d5")], cache(page=4))
    assert [r.num_match_tokens for r in records] == [0, 8, 8]
    assert [r.num_hit_tokens for r in records] == [0, 8, 8]


def test_checkpoints_lie_where_the_trace_can_tell_contents_apart():
    # Grid 4 and page 6: kept at multiples of lcm(4, 6) = 12 only; 23 is floored to 12.
    one_cache = cache(page=6)
    replay([ask("a23", grid_tokens=4)], one_cache)
    assert [node.end for node in one_cache.tree.nodes() if node.has_state] == [12]


def test_a_branch_point_is_saved_by_the_second_request_and_hit_by_the_third():
    requests = [ask("a8 b4"), ask("a8 c4"), ask("a8 d4")]
    assert hits(requests, cache("branch")) == [0, 0, 8]
    assert hits(requests, cache("prompt_end")) == [0, 0, 0]


def test_turn_end_lets_the_next_turn_reuse_the_answer():
    # The answer's last token is never fed back: of 4 + 3 tokens 6 are computed.
    requests = [ask("a4", "b3"), ask("a4 b3 c2", "d1")]
    assert hits(requests, cache("turn_end")) == [0, 6]
    assert hits(requests, cache("prompt_end")) == [0, 4]
    assert hits(requests, cache("turn_end", cache_outputs=False)) == [0, 4]


def test_turn_end_gives_its_own_state_away_and_copies_nothing():
    one_cache = cache("turn_end", slots=1)
    request = ask("a4", "b3")
    lease = one_cache.acquire(request, one_cache.lookup(request))
    one_cache.commit(lease, 4)
    assert one_cache.grow(lease, 6)
    one_cache.commit(lease, 6)
    assert one_cache.memory.state_bytes == 10
    one_cache.release(lease, finished=True)
    assert (lease.num_checkpoints, lease.num_copied_bytes) == (1, 0)
    assert one_cache.lookup(ask("a4 b3")).num_hit_tokens == 6
    one_cache.check()


def test_every_keeps_a_state_each_n_tokens_in_prefill_and_decode():
    one_cache = cache({"name": "every", "tokens": 3})
    serve(ask("a7", "b6"), one_cache)  # computed: 7 + 6 - 1 = 12
    assert sorted(node.end for node in one_cache.tree.nodes() if node.has_state) == [3, 6, 9, 12]


def test_a_hit_copies_the_state_into_a_slot_of_its_own():
    one_cache = cache()
    serve(ask("a8"), one_cache)
    request = ask("a8 b2")
    lease = one_cache.acquire(request, one_cache.lookup(request))
    assert lease.num_copied_bytes == 10
    assert one_cache.usage().state_bytes == 20  # the checkpoint stays as it was
    one_cache.check()
    one_cache.release(lease, finished=False)
    assert one_cache.lookup(ask("a8 c2")).num_hit_tokens == 8


def test_with_one_slot_the_request_takes_the_checkpoint_over():
    one_cache = cache(slots=1)
    assert hits([ask("a8"), ask("a8 b2")], one_cache) == [0, 8]
    # the state moved on to 10 with the second request; at 8 a tombstone is left
    assert one_cache.lookup(ask("a8 b2 c9")).num_hit_tokens == 10
    assert one_cache.lookup(ask("a8 d2")).num_hit_tokens == 0
    assert one_cache.lookup(ask("a8 d2")).num_once_tokens == 8


def test_evicting_a_state_leaves_its_kv_as_a_tombstone():
    # Two slots: one for the request that runs and one checkpoint. d's takes the place of a's.
    records = replay([ask("a8"), ask("d5", 3), ask("a8 b2")], cache(slots=2))
    assert (records[1].num_evicted_states, records[1].num_evicted_tokens) == (1, 0)
    assert (records[2].num_match_tokens, records[2].num_hit_tokens) == (8, 0)
    assert records[2].miss_reason == "state_evicted"


def test_kv_goes_page_by_page_from_the_least_recent_leaf():
    # 12 pages: a8 holds 8, c6 needs 2 more than the 4 that are free: the last 2 tokens of a go,
    # and the state at 8 with them.
    one_cache = cache(pages=12)
    records = replay([ask("a8"), ask("c6"), ask("a8 b1")], one_cache)
    assert (records[1].num_evicted_tokens, records[1].num_evicted_states) == (2, 1)
    assert records[2].num_match_tokens == 6


def test_consumed_refresh_lets_unused_ancestors_go_first():
    # States at 2 (first turn) and 4 (second); the third turn uses only 4. With three slots, one of
    # them running, x's checkpoint must displace one: path refresh keeps the shallow one (deepest
    # of the oldest use first), consumed refresh drops it.
    turns = [ask("a2"), ask("a2 b2"), ask("a2 b2 c2"), ask("x3", 2)]
    by_path = cache(slots=4)
    replay(turns, by_path)
    consumed = cache(slots=4, eviction={"name": "lru", "refresh": "consumed"})
    replay(turns, consumed)
    ends = [sorted(n.end for n in c.tree.nodes() if n.has_state) for c in (by_path, consumed)]
    assert ends == [[2, 3, 4], [3, 4, 6]]


def test_in_a_shared_pool_states_and_kv_displace_each_other():
    # 40 bytes: a10 leaves 10 of KV and a state of 10. c25 needs 25 + 10 running: 15 too many for
    # the 20 that are free: the state (10) goes first, then 5 of a's tokens; then c's checkpoint
    # needs 10 more and takes the 5 tokens that are left, which is not enough: it is skipped.
    one_cache = cache(memory=SharedMemory(1, 10, 40))
    records = replay([ask("a10", 2), ask("c25", 2)], one_cache)
    assert records[1].num_evicted_states == 1
    assert records[1].num_evicted_tokens == 6  # 5, and 1 for the token that is fed back
    assert records[1].num_checkpoints == 0


def test_a_request_larger_than_the_memory_is_refused_and_leaves_no_trace():
    one_cache = cache(pages=8)
    records = replay([ask("a9"), ask("b8"), ask("c8", 2)], one_cache)
    assert [r.miss_reason for r in records] == ["refused", "cold", "refused"]
    assert one_cache.tree.num_nodes == 1


def test_a_running_request_cannot_lose_its_prefix():
    one_cache = cache(pages=10, slots=3)
    first = ask("a8")
    lease = one_cache.acquire(first, one_cache.lookup(first))
    one_cache.commit(lease, 8)
    other = ask("b3")
    assert one_cache.acquire(other, one_cache.lookup(other)) is None  # needs 3, 2 are free
    one_cache.check()
    one_cache.release(lease, finished=True)
    assert one_cache.acquire(other, one_cache.lookup(other)) is not None
    one_cache.check()


def test_two_requests_with_the_same_new_prefix_keep_it_once():
    one_cache = cache()
    one, two = ask("a8 b2"), ask("a8 c2")
    leases = [one_cache.acquire(r, one_cache.lookup(r)) for r in (one, two)]
    assert one_cache.usage().kv_bytes == 20
    for lease in leases:
        one_cache.commit(lease, 10)
    assert one_cache.usage().kv_bytes == 12
    one_cache.check()


def test_a_preempted_request_commits_nothing_new():
    one_cache = cache()
    request = ask("a8")
    lease = one_cache.acquire(request, one_cache.lookup(request))
    one_cache.release(lease, finished=False)
    assert one_cache.usage().kv_bytes == 0
    assert one_cache.usage().state_bytes == 0
    assert one_cache.lookup(ask("a8")).num_match_tokens == 0


def test_tokens_of_unknown_content_take_memory_and_match_nothing():
    prompt = Spans.of([(1, 8)]).joined(Spans.unknown(3))
    requests = [Request("x", prompt, Spans.unknown(4)) for _ in range(2)]
    one_cache = cache()
    records = replay(requests, one_cache)
    assert [r.num_match_tokens for r in records] == [0, 8]
    assert records[1].num_hit_tokens == 8  # the checkpoint falls back to where content is known
    assert one_cache.usage().peak_kv_bytes == 8 + 3 + 3


@pytest.mark.parametrize("broken", ["pages", "slots", "locks", "evictable"])
def test_check_finds_a_broken_law(broken):
    one_cache = cache()
    serve(ask("a8"), one_cache)
    node = next(one_cache.tree.nodes())
    if broken == "pages":
        one_cache.memory.pages.used += 1
    elif broken == "slots":
        node.state_slot = 99
    elif broken == "locks":
        node.kv_locks += 1
    else:
        one_cache.residents.evictable_tokens -= 1
    with pytest.raises(AssertionError, match="law broken"):
        one_cache.check()
