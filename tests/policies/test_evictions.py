"""Eviction policies by hand-worked examples. A token is a letter and 1 byte, a state 10 bytes;
prefill of n tokens after p costs 2 n + the sum of p + 1 .. p + n.
"""

from collections import Counter

import numpy as np
import pytest
from workbench import KV_BYTES, STATE_BYTES, ask, flops, make_cache, resident, states

from hybridsim.cache.pools import SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.errors import UserError
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.policies.base import Setting
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay


def kept_kv(texts, eviction, pages, **kwargs):
    requests = [ask(text) for text in texts]
    cache = make_cache(requests, "none", eviction, pages=pages, slots=0, state_bytes=0, **kwargs)
    replay(requests, cache)
    return resident(cache)


def kept_states(requests, eviction, slots, checkpoint="prompt_end"):
    requests = [ask(x) if isinstance(x, str) else x for x in requests]
    cache = make_cache(requests, checkpoint, eviction, slots=slots)
    replay(requests, cache)
    return states(cache)


def test_hits_per_token_prefers_the_short_and_popular():
    # After aaaaaaaa twice its leaf (the last token) has 2 uses; bb has 1 use for 2 tokens. Of 12
    # pages 10 are taken, cccc needs 4: bb goes, the oldest stays.
    texts = ["aaaaaaaa", "aaaaaaaa", "bb", "cccc"]
    assert kept_kv(texts, "hits_per_token", 12) == ["aaaaaaaa", "cccc"]
    assert kept_kv(texts, "lru", 12) == ["aaaaaa", "bb", "cccc"]


def test_gdsf_weighs_cost_against_size_and_ages():
    # aaaa costs 8 + 10 = 18, 4.5 a byte; bb 4 + 3 = 7, 3.5 a byte. Of 6 pages all are taken.
    assert kept_kv(["aaaa", "bb", "cc"], "gdsf", 6) == ["aaaa", "cc"]
    # L is 3.5 now, so cc entered with 7, and for dd the tail of aaaa (4.5) goes.
    assert kept_kv(["aaaa", "bb", "cc", "dd"], "gdsf", 6) == ["aa", "cc", "dd"]


def test_pgdsf_charges_what_the_uncached_tokens_cost():
    # bb after aaaa cost 4 + 5 + 6 = 15, 7.5 a token; cc alone 3.5: cc goes for dd. With the clock
    # at 3.5 dd has 7 and goes for ee.
    texts = ["aaaa", "aaaabb", "cc", "dd", "ee"]
    assert kept_kv(texts[:4], "pgdsf", 8) == ["aaaabb", "dd"]
    assert kept_kv(texts, "pgdsf", 8) == ["aaaabb", "ee"]


def test_s3fifo_promotes_the_used_and_remembers_the_evicted():
    # aa is used twice more, so at the first eviction it moves to the main queue and bb, the next
    # in the small queue, goes. bb comes back from the ghost into the main queue (cc goes), and
    # survives ee, for which dd, alone in the small queue, goes.
    texts = ["aa", "aa", "aa", "bb", "cc", "dd", "bb", "ee"]
    assert kept_kv(texts[:6], "s3fifo", 6) == ["aa", "cc", "dd"]
    assert kept_kv(texts[:7], "s3fifo", 6) == ["aa", "bb", "dd"]
    assert kept_kv(texts, "s3fifo", 6) == ["aa", "bb", "ee"]


def test_flop_aware_trades_recency_for_saved_flops():
    # States at 6, 2 and 1 tokens save 12 + 21 = 33, 4 + 3 = 7 and 3 FLOPs; spread: 1, 2/15, 0.
    # Alpha 10: c, the most recent, has 1 + 0; b more than 10 x 2/15 = 1.33; a 0 + 10.
    requests = ["aaaaaa", "bb", "c", "dd"]
    assert kept_states(requests, {"name": "flop_aware", "alpha": 0.0}, 3) == ["bb", "c", "dd"]
    assert kept_states(requests, {"name": "flop_aware", "alpha": 10.0}, 3) == ["aaaaaa", "bb", "dd"]


def test_flop_aware_in_a_shared_pool_counts_bytes_really_freed():
    # aaaa: its state saves 8 + 10 = 18 FLOPs for 10 bytes, its KV 18 for 4. Alpha 10 drops the
    # state and keeps the KV. 44 bytes: aaaa holds 14, the second 4 + 10 + 10 running.
    requests = [ask("aaaa"), ask("bbbb", 1)]
    cache = make_cache(requests, "prompt_end", {"name": "flop_aware", "alpha": 10.0},
                       shared_bytes=27)  # fmt: skip
    replay(requests, cache)
    assert resident(cache) == ["aaaa", "bbbb"]
    assert states(cache) == ["bbbb"]


def test_seglen_keeps_what_is_long_to_replay():
    # Gaps: aa 2, aaaaaa 4 (after aa), bbb 3. Weight 10: aa goes, although bbb is as little used.
    requests = ["aa", "aaaaaa", "bbb", "cccccc"]
    assert kept_states(requests, {"name": "seglen", "weight": 10.0}, 3) == [
        "aaaaaa", "bbb", "cccccc",
    ]  # fmt: skip
    assert kept_states(requests, {"name": "seglen", "weight": 0.0}, 3) == [
        "aaaaaa", "bbb", "cccccc",
    ]  # fmt: skip
    # Where the oldest has the longest gap the weight decides.
    requests = ["aaaaaa", "bb", "cccc", "ddd"]
    assert kept_states(requests, {"name": "seglen", "weight": 10.0}, 3) == ["aaaaaa", "cccc", "ddd"]
    assert kept_states(requests, {"name": "seglen", "weight": 0.0}, 3) == ["bb", "cccc", "ddd"]


def test_coverage_drops_the_state_whose_loss_costs_the_shortest_replay():
    # Gaps: aa 2, aaaaaa 4 (after aa), bbb 3. aa goes first; then aaaaaa has 6, c6 too: bbb goes.
    requests = ["aa", "aaaaaa", "bbb", "cccccc", "dddddd"]
    assert kept_states(requests[:4], "coverage", 3) == ["aaaaaa", "bbb", "cccccc"]
    assert kept_states(requests, "coverage", 3) == ["aaaaaa", "cccccc", "dddddd"]


def test_tlru_sees_that_a_state_above_makes_one_below_spare():
    """Needed: a state without which the next prompt, 1 token longer, would compute more than 3. The
    state at 8 was needed until one at 7 came; then it goes before the older one of zzzz.
    """
    eviction = {"name": "tlru", "threshold_tokens": 3, "next_prompt_tokens": 1}
    requests = ["zzzz", "abcdefgh", "abcdefg", "yyyy"]
    assert kept_states(requests[:3], eviction, 3) == ["abcdefg", "abcdefgh", "zzzz"]
    assert kept_states(requests, eviction, 3) == ["abcdefg", "yyyy", "zzzz"]


@pytest.mark.parametrize("slots", [16, 24, 32, 40, 48])
def test_coverage_keeps_something_of_every_chain(slots):
    """SGLang #38000's workload, 16 states a chain: chains 0, 1, 2, a fork of chain 0 after 4
    states, then the three again. There LRU gave the fork nothing and coverage all 8192 tokens.
    """
    chains = [Spans.of([(number, 32768)]) for number in range(3)]
    fork = Spans.of([(0, 8192), (9, 24576)])
    requests = [Request("", x, Spans.unknown(1)) for x in (*chains, fork, *chains)]
    hits = {}
    for eviction in ("coverage", "lru"):
        every = {"name": "every", "tokens": 2048}
        cache = make_cache(requests, every, eviction, slots=slots)
        hits[eviction] = [r.num_hit_tokens for r in replay(requests, cache)]
    assert hits["coverage"][3] == 8192
    assert min(hits["coverage"][4:]) >= 8192
    assert sum(hits["lru"]) < sum(hits["coverage"])


def test_coverage_is_refused_in_a_shared_pool_with_the_reason():
    with pytest.raises(UserError, match="never against KV"):
        RadixCache(SharedMemory(KV_BYTES, STATE_BYTES, 100), 1, make_checkpoint("prompt_end"),
                   make_eviction("coverage"))  # fmt: skip


def test_lru_k_looks_at_the_last_use_but_one():
    # aa is used at requests 1, 2; bb at 3, 4; aa again at 5: its last use but one is 2, bb's 3.
    texts = ["aa", "aa", "bb", "bb", "aa", "cc"]
    assert kept_kv(texts, "lru_k", 4, compute_last_token=False) == ["bb", "cc"]
    assert kept_kv(texts, "lru", 4, compute_last_token=False) == ["aa", "cc"]


def test_tlru_drops_first_what_the_next_turn_can_lose():
    # Threshold 3: of bbbbbb the next turn (6 tokens) can lose 3 and compute no more than 3. So for
    # cc, 2 of these go, although aa, used before, could be lost whole as well: aa is older.
    texts = ["bbbbbb", "aaaa", "bbbbbb", "cc"]
    assert kept_kv(texts, {"name": "tlru", "threshold_tokens": 3}, 10) == ["aa", "bbbbbb", "cc"]
    assert kept_kv([*texts, "dd"], {"name": "tlru", "threshold_tokens": 3}, 10) == [
        "a", "bbbbb", "cc", "dd",
    ]  # fmt: skip


def test_session_end_drops_the_ended_sessions_first():
    requests = [ask("bb", session_id="2"), ask("aaaa", session_id="1"), ask("cc", session_id="3"),
                ask("bbd", session_id="2")]  # fmt: skip
    cache = make_cache(requests, "none", "session_end", pages=6, slots=0, state_bytes=0)
    assert [r.num_match_tokens for r in replay(requests, cache)] == [0, 0, 0, 2]
    lru = make_cache(requests, "none", "lru", pages=6, slots=0, state_bytes=0)
    assert [r.num_match_tokens for r in replay(requests, lru)] == [0, 0, 0, 0]


def test_session_end_notices_an_end_that_does_not_touch_the_object():
    # Session 1 ends at the third request, which does not pass aa. For dd, LRU would let aa go as
    # well; but with bb older than aa it is bb that LRU drops, and aa that the oracle drops.
    requests = [ask("bb", session_id="2"), ask("aa", session_id="1"), ask("cc", session_id="1"),
                ask("dd", session_id="3"), ask("bbe", session_id="2")]  # fmt: skip
    kept = []
    for eviction in ("session_end", "lru"):
        cache = make_cache(requests, "none", eviction, pages=6, slots=0, state_bytes=0)
        replay(requests[:4], cache)
        kept.append(resident(cache))
    assert kept == [["bb", "cc", "dd"], ["aa", "cc", "dd"]]


def test_session_end_refuses_a_trace_without_sessions():
    with pytest.raises(UserError, match="needs session ids"):
        make_cache([ask("a")], "none", "session_end", pages=4, slots=1)


def test_belady_drops_the_state_that_is_needed_last():
    # Three slots, one running. aa comes back, bb never: bb goes, though more recent.
    requests = [ask("aa"), ask("bb"), ask("cc"), ask("d"), ask("aaz")]
    cache = make_cache(requests, "prompt_end", "belady", slots=3)
    records = replay(requests, cache)
    assert records[-1].num_hit_tokens == 2
    lru = make_cache(requests, "prompt_end", "lru", slots=3)
    assert replay(requests, lru)[-1].num_hit_tokens == 0


def test_random_leaf_draws_evenly_and_spares_the_marked():
    first, second = Counter(), Counter()
    requests = [ask(letter) for letter in "abcdef"]
    for seed in range(400):
        rng = np.random.default_rng(seed)
        cache = make_cache(requests, "none", "random_leaf", pages=4, slots=0, state_bytes=0)
        cache.prepare(Setting(requests, KV_BYTES, 0, flops, rng))
        replay(requests[:5], cache)
        kept = resident(cache)
        first.update(set("abcd") - set(kept))
        replay(requests[5:], cache)
        second.update(set(kept) - set(resident(cache)))
    # 400 draws of 4: 100 each, standard deviation 8.7
    assert all(60 < first[letter] < 140 for letter in "abcd")
    # e came in the new phase, so it is marked and never goes before the other three
    assert set(second) == set("abcd")
