"""Marconi by hand-worked examples, by laws, and against a brute-force twin."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from marconi_twin import Tie, Twin

from hybridsim.engines.marconi import POLICIES, VARIANTS, MarconiServer, formulas_for
from hybridsim.engines.marconi.block_tree import BlockCache
from hybridsim.engines.marconi.eviction import artifact_gain, corrected_gain
from hybridsim.errors import UserError
from hybridsim.models import get_model
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.request import Request, Spans
from tests.plain import num_common

SMALL = MarconiFormulas(width=1, state=1, num_ssm=1, num_attention=1, num_mlp=1)
KAPPA, SIGMA = 4, 34  # 4 l d; 2 d n + 8 (2 d + 2 n)


def ask(prompt: str, output: str = "") -> Request:
    """One token a letter."""

    def spans(text):
        return Spans.of([(ord(letter), 1) for letter in text])

    return Request(prompt, spans(prompt), spans(output))


def hits(requests, server):
    found = [server.serve(request).num_hit_tokens for request in requests]
    server.check()
    return found


def test_the_small_model_has_the_sizes_of_the_examples():
    assert (SMALL.kv_bytes_per_token, SMALL.state_bytes) == (KAPPA, SIGMA)


@pytest.mark.parametrize("policy", ["v1", "v2", "v3"])
def test_a_shared_prefix_is_reusable_from_its_third_occurrence(policy):
    # 1st inserts xxxxab, 2nd splits at xxxx, 3rd hits these 4. The same prompt again has a state
    # only behind its output, so it hits 4 as well; its continuation hits all 7 tokens.
    requests = [ask("xxxxab", "1"), ask("xxxxcd", "2"), ask("xxxxef", "3"), ask("xxxxef", "3"),
                ask("xxxxef3gh")]  # fmt: skip
    assert hits(requests, MarconiServer(10**6, SMALL, policy)) == [0, 0, 4, 4, 7]


def test_leaf_lru_evicts_whole_leaves_oldest_first():
    # A sequence of 5 takes 5 * 4 + 34 = 54 bytes; two fit into 110. The third drops the first.
    server = MarconiServer(110, SMALL, "v1")
    requests = [ask("aaaa", "1"), ask("bbbb", "2"), ask("cccc", "3"), ask("bbbb2x"), ask("aaaa1x")]
    # bbbb2x extends its path by 1: 108 + 4 + 34 > 110: c goes. aaaa1x then finds nothing.
    assert hits(requests, server) == [0, 0, 0, 5, 0]


def test_a_node_with_one_child_gives_up_its_state_and_keeps_its_kv():
    # aaaa|bb: states at 4 and 6. Alpha 0 is LRU over both. The next needs 4 + 34 bytes of 86 - 92:
    # the one at 4 is older (each later lookup refreshes the deepest only) and frees 34.
    server = MarconiServer(4 * KAPPA + 2 * KAPPA + 2 * SIGMA + 9, SMALL, "v3", alpha=0.0)
    requests = [ask("aaaa"), ask("aaaabb"), ask("c"), ask("aaaabbx")]
    assert hits(requests, server) == [0, 4, 0, 6]
    assert server.serve(ask("aaaay")).num_match_tokens == 4


def test_a_sequence_larger_than_the_cache_is_kept_all_the_same():
    server = MarconiServer(10, SMALL, "v3")
    assert hits([ask("abcdef", "g"), ask("abcdefgh")], server) == [0, 7]
    assert server.peak_kv_bytes + server.peak_state_bytes > 10


def test_the_artifact_books_a_leaf_with_the_bytes_of_the_last_candidate():
    # a8 (66 B), b4 (50 B) and c1 (38 B) are 154 of 160. d2 needs 42, 36 too many. Alpha 0: a8 goes
    # first. Corrected: 66 are freed, enough. Artifact: booked are the 38 of c1: enough as well.
    # e9 then needs 70. Corrected holds 130, 40 too many: b4 goes (50). Artifact: the last candidate
    # is d2 (42): b4 is booked with 42, enough too. f1 (38), held 150: 28 too many: c1, 38; the
    # artifact books it with e9's 70. So they part only where own bytes fall short:
    requests = [ask("a" * 8), ask("bbbb"), ask("c"), ask("d" * 9)]
    # d9 needs 70, 64 too many. Corrected: a8 frees 66. Artifact: a8 booked with 38, b4 goes too.
    one, two = (MarconiServer(160, SMALL, "v3", alpha=0.0, variant=v) for v in VARIANTS)
    for server in (one, two):
        hits(requests, server)
    assert (one.cache.num_states, two.cache.num_states) == (2, 3)


def test_the_artifact_takes_the_parents_mlp_part_by_the_attention_formula():
    # d = n = 1: F_mlp(l) = 16 l, F_attn(l) = 8 l + 4 l^2, F_ssm(l) = 38 l; T = 6, P = 4.
    # Corrected: 38 * 2 + (192 - 96) + (96 - 64) = 204; artifact: 38 * 2 + 96 + (96 - 96) = 172.
    assert corrected_gain(SMALL, 6, 4) == pytest.approx(204 / (34 + 24))
    assert artifact_gain(SMALL, 6, 4) == pytest.approx(172 / (34 + 24))


def test_vllm_plus_keeps_a_state_for_each_block_and_hits_whole_blocks_and_a_last_partial_one():
    # Blocks of 32: 40 tokens are one block and a partial one of 8.
    server = MarconiServer(10**6, SMALL, "vllm_plus")
    text = "abcdefgh" * 5
    requests = [ask(text), ask(text), ask(text + "x"), ask(text[:39]), ask(text[:32] + "y")]
    assert hits(requests, server) == [0, 40, 40, 32, 32]


letters = st.text("ab", min_size=1, max_size=9)
traces = st.lists(st.tuples(letters, st.text("ab", max_size=3)), min_size=1, max_size=14)


@given(trace=traces, capacity=st.integers(40, 500), alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
       policy=st.sampled_from(["v1", "v3"]))  # fmt: skip
@settings(max_examples=400)
def test_engine_and_twin_hit_the_same(trace, capacity, alpha, policy):
    twin = Twin(capacity, policy, alpha, 1, 1, 1, 1, 1)
    server = MarconiServer(capacity, SMALL, policy, alpha=alpha)
    for prompt, output in trace:
        try:
            hit = twin.serve(tuple(prompt), tuple(output))
        except Tie:
            event("tie")
            return
        assert server.serve(ask(prompt, output)).num_hit_tokens == hit
        assert server.cache.num_states == len(twin.times)
        assert twin.held() == KAPPA * server.cache.num_tokens + SIGMA * server.cache.num_states
    server.check()


@given(trace=traces, capacity=st.integers(40, 3000), policy=st.sampled_from(POLICIES),
       variant=st.sampled_from(VARIANTS))  # fmt: skip
@settings(max_examples=100)
def test_laws_hold_and_no_hit_exceeds_what_an_endless_cache_has(trace, capacity, policy, variant):
    server = MarconiServer(capacity, SMALL, policy, variant=variant, multiplier=2)
    seen = []
    for prompt, output in trace:
        record = server.serve(ask(prompt, output))
        best = max((num_common(prompt, other) for other in seen), default=0)
        assert 0 <= record.num_hit_tokens <= record.num_match_tokens <= best
        seen.append(prompt + output)
        server.check()


pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=4)


@given(trace=st.lists(pairs, min_size=1, max_size=10), capacity=st.integers(100, 5000),
       policy=st.sampled_from(["v1", "v3", "vllm_plus"]))  # fmt: skip
@settings(max_examples=60)
def test_spans_and_single_tokens_give_the_same(trace, capacity, policy):
    """A token of a span is named by the span and the offset, and by all that is before it."""
    names: dict[tuple, int] = {}
    coarse, fine = (MarconiServer(capacity, SMALL, policy) for _ in range(2))
    for pairs in trace:
        tokens = [(i, j, o) for j, (i, n) in enumerate(pairs) for o in range(n)]
        path, single = (), []
        for token in tokens:
            path = (path, token[0], token[2], token[2] == 0)
            single.append((names.setdefault(path, len(names)), 1))
        one = coarse.serve(Request("", Spans.of(pairs), Spans.unknown(0)))
        two = fine.serve(Request("", Spans.of(single), Spans.unknown(0)))
        assert (one.num_match_tokens, one.num_hit_tokens) == (
            two.num_match_tokens,
            two.num_hit_tokens,
        )


def test_v2_tunes_once_after_the_window():
    # 54 bytes a sequence, 110 in all: the third request evicts first, so the window is 2 * 3.
    server = MarconiServer(110, SMALL, "v2", multiplier=2)
    alphas = []
    for letter in "abcdefgh":
        server.serve(ask(letter * 4, "1"))
        alphas.append(server.tuned_alpha)
    # Nothing is ever hit, so all alphas save the same and the smallest wins.
    assert alphas == [None] * 5 + [0.0] * 3


def test_the_model_must_be_of_the_artifacts_kind():
    assert formulas_for(get_model("marconi-7b")) == MarconiFormulas()
    with pytest.raises(UserError, match="marconi-7b"):
        formulas_for(get_model("qwen3.5-0.8b"))


@pytest.mark.parametrize(
    ("options", "place"),
    [({"policy": "v4"}, "engine.policy"), ({"variant": "fixed"}, "engine.variant"),
     ({"alpha": -1.0}, "engine.alpha"), ({"multiplier": 0}, "engine.multiplier")],
)  # fmt: skip
def test_bad_options_are_named(options, place):
    with pytest.raises(UserError, match=place):
        MarconiServer(100, SMALL, **options)


def test_check_finds_a_broken_sum():
    server = MarconiServer(10**6, SMALL, "v3")
    server.serve(ask("abc"))
    server.cache.tree.num_tokens += 1
    with pytest.raises(AssertionError, match="tokens counted"):
        server.check()
    blocks = BlockCache(10**6, SMALL)
    blocks.serve(ask("abc").prompt, ask("").output)
    blocks.num_tokens += 1
    with pytest.raises(AssertionError, match="tokens counted"):
        blocks.check()
