"""Laws that hold for every trace: equal contents in other spans, leaps, sums, monotonic facts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.generate import random_trace
from conformance.sglang.configs import random_config, shape_for, with_pools
from hybridsim.engines.content import Content
from hybridsim.engines.misses import MissLedger, Reuse
from hybridsim.engines.sglang.decision import Decision, Outcome
from hybridsim.engines.sglang.engine import SGLangEngine
from hybridsim.engines.sglang.options import SGLangOptions, options_from
from hybridsim.errors import UserError
from hybridsim.records import HitSource, MissReason
from hybridsim.request import Request, Spans
from tests.plain import num_common


def _job(seed: int, num_requests: int = 25) -> tuple[SGLangOptions, list[dict[str, Any]]]:
    rng = np.random.default_rng(seed)
    config = random_config(rng)
    trace = random_trace(shape_for(config, rng, num_requests), rng)
    config = with_pools(config, trace, rng)
    del config["max_context"]
    return options_from(config), trace


def _by_token(row: dict[str, Any]) -> Request:
    prompt, output = ([(token, 1) for token in row[key]] for key in ("tokens", "output"))
    return Request(row["id"], Spans.of(prompt), Spans.of(output), priority=row.get("priority", 0))


def _outcome(decision: Decision | None) -> tuple[Any, ...]:
    assert decision is not None
    evictions = [
        (one.asked_tokens, one.asked_states, one.got_tokens, one.got_states, one.deleted)
        for one in decision.evictions
    ]
    return (
        decision.outcome,
        decision.num_match_tokens,
        decision.num_hit_tokens,
        decision.branch,
        decision.saved,
        decision.after,
        evictions,
    )


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_losses_add_up_to_a_brute_force_ideal(seed: int) -> None:
    """The ideal: the longest prefix shared with anything computed before, one token short."""
    options, trace = _job(seed)
    engine, computed = SGLangEngine(options), list[list[int]]()
    for row in trace:
        record = engine.serve(_by_token(row))
        decision = engine.last_decision
        assert decision is not None
        if decision.outcome is not Outcome.SERVED:
            assert record.miss_reason == MissReason.REFUSED
            continue
        prompt = row["tokens"]
        ideal = max((num_common(prompt, past) for past in computed), default=0)
        ideal = min(ideal, len(prompt) - 1)
        assert sum(engine.last_losses.values()) == ideal - decision.num_hit_tokens
        assert all(tokens > 0 for tokens in engine.last_losses.values())
        assert decision.num_hit_tokens <= decision.num_match_tokens <= len(prompt)
        assert (record.hit_source == HitSource.NONE) == (decision.num_hit_tokens == 0)
        computed.append((prompt + row["output"])[: len(prompt) + decision.num_output_tokens - 1])
    engine.check()


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_without_shortage_nothing_is_lost_to_eviction(seed: int) -> None:
    options, trace = _job(seed)
    ample: dict[str, Any] = {"kv_tokens": 10**6, "state_slots": 10**4, "int8_ckpt": False}
    ample["max_states_per_path"] = -1
    plain = {name: getattr(options, name) for name in options.__slots__}
    if options.sliding_window is not None:
        ample["swa_tokens"] = 10**6
    engine = SGLangEngine(options_from({**plain, **ample}))
    for row in trace:
        record = engine.serve(_by_token(row))
        assert record.num_evicted_tokens == record.num_evicted_states == 0
    assert not {MissReason.STATE_EVICTED, MissReason.KV_EVICTED} & set(engine.misses.lost_tokens)
    engine.check()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 7, 16]))
def test_how_a_trace_is_cut_into_spans_changes_nothing(seed: int, size: int) -> None:
    """Segment-wise contents: one trace by the token, the same trace by the segment."""
    rng = np.random.default_rng(seed)
    options, _ = _job(seed)
    by_token, by_segment = SGLangEngine(options), SGLangEngine(options)
    lengths = {name: int(rng.integers(1, 12 * size)) for name in range(6)}
    history: list[tuple[int, int]] = []
    for number in range(20):
        history = history[: int(rng.integers(0, len(history) + 1))]
        for _ in range(int(rng.integers(1, 4))):
            name = int(rng.integers(0, 6))
            history.append((name + 10 * len(history), lengths[name]))
        output = [(1000 + number, int(rng.integers(1, 40)))]
        whole = Request(f"r{number}", Spans.of(history), Spans.of(output))
        prompt, tail = (
            [pair for one in part for pair in _tokens(one)] for part in (history, output)
        )
        single = Request(f"r{number}", Spans.of(prompt), Spans.of(tail))
        by_segment.serve(whole)
        by_token.serve(single)
        assert _outcome(by_segment.last_decision) == _outcome(by_token.last_decision)
        assert by_segment.last_losses == by_token.last_losses
    by_segment.check()


def _tokens(segment: tuple[int, int]) -> list[tuple[int, int]]:
    name, length = segment
    return [(name * 1000 + index, 1) for index in range(length)]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=8),
)
def test_spans_agree_as_their_definition_says(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Equal up to the first pair of spans that differ, and inside it if only the ends differ."""
    first, second = Content.of(Spans.of(one)), Content.of(Spans.of(other))
    expected = 0
    for (a, m), (b, n) in zip(one, other, strict=False):
        expected += min(m, n) if a == b else 0
        if (a, m) != (b, n):
            break
    stop = min(first.num_tokens, second.num_tokens)
    assert first.common_end(second, 0, stop) == min(expected, stop)
    assert second.common_end(first, 0, stop) == min(expected, stop)
    for page in (1, 2, 3):
        if page <= stop:
            same = first.page_key(0, page) == second.page_key(0, page)
            assert same == (expected >= page)


def test_unknown_output_is_new_content_every_time() -> None:
    engine = SGLangEngine(SGLangOptions(strategy="no_buffer"))  # type: ignore[arg-type]
    for name in ("a", "b"):
        engine.serve(Request(name, Spans.of([(7, 100)]), Spans.unknown(20)))
    assert engine.server.usage().kv_cached == 100 + 2 * 19


def test_misses_are_named_by_their_cause() -> None:
    ledger = MissLedger(64)
    base = Content.of(Spans.of([(1, 300), (2, 300)]))
    assert ledger.explain(base, 600, Reuse(0, 0)) == {}
    ledger.remember(base, 600, (576,))
    fork = Content.of(Spans.of([(1, 300), (3, 300)]))
    first_fork = ledger.explain(fork, 600, Reuse(0, 300, (256,)))
    assert first_fork == {MissReason.FIRST_FORK: 256, MissReason.ALIGNMENT: 300 - 256}
    never = ledger.explain(fork, 600, Reuse(0, 300))
    assert never == {MissReason.IN_UNIQUE_TOKENS: 256, MissReason.ALIGNMENT: 44}
    longer = Content.of(Spans.of([(1, 300), (2, 300), (4, 50)]))
    kept = ledger.explain(longer, 650, Reuse(0, 600))
    assert kept == {MissReason.STATE_EVICTED: 576, MissReason.ALIGNMENT: 24}
    gone = ledger.explain(longer, 650, Reuse(0, 128))
    assert gone == {MissReason.KV_EVICTED: 576, MissReason.ALIGNMENT: 24}
    dropped = ledger.explain(longer, 650, Reuse(512, 600, num_dropped_tokens=64))
    assert dropped == {MissReason.DRAFTER_DROP: 64, MissReason.ALIGNMENT: 24}
    short = Content.of(Spans.of([(1, 40), (5, 40)]))
    assert ledger.explain(short, 80, Reuse(0, 40)) == {MissReason.BELOW_BLOCK: 40}


def test_without_a_radix_cache_everything_is_computed_and_freed() -> None:
    engine = SGLangEngine(SGLangOptions(radix=False, page_size=16))
    records = [engine.serve(Request(name, Spans.of([(1, 500)]), Spans.unknown(9))) for name in "ab"]
    assert [record.num_hit_tokens for record in records] == [0, 0]
    assert records[1].miss_reason == MissReason.KV_EVICTED
    usage = engine.server.usage()
    assert (usage.kv_free, usage.state_free) == (4096, 64)
    engine.check()


@pytest.mark.parametrize(
    ("option", "value", "names"),
    [
        ("strategy", "extra", "extra_buffer"),
        ("eviction_policy", "lur", "lru"),
        ("kv_tokens", 0, "positive"),
        ("state_slots", -3, "positive"),
        ("page_size", 1.5, "positive"),
        ("track_interval", 100, "multiples of cache.page_size=64"),
        ("chunk_size", "64", "positive"),
        ("sliding_window", 128, "together"),
        ("trackinterval", "trackinterval", "did you mean 'track_interval'"),
        ("overlap", "yes", "true or false"),
        ("max_states_per_path", "none", "whole number"),
        ("max_states_per_path", 0, "-1 for no cap"),
        ("max_states_per_path", -2, "-1 for no cap"),
        ("kv_tokens", 63, "one page"),
    ],
)
def test_bad_options_name_the_key_the_value_and_the_allowed(
    option: str, value: object, names: str
) -> None:
    with pytest.raises(UserError, match=names) as error:
        options_from({"page_size": 64, option: value})
    assert option in str(error.value)
    assert str(value) in str(error.value) or option == "sliding_window"


@pytest.mark.parametrize(
    ("overlap", "page_size", "resolved"),
    [(True, 1, "extra_buffer"), (False, 64, "extra_buffer"), (False, 1, "no_buffer")],
)
def test_auto_means_the_extra_buffer_where_no_buffer_would_cost_something(
    overlap: bool, page_size: int, resolved: str
) -> None:
    options = options_from({"strategy": "auto", "overlap": overlap, "page_size": page_size})
    assert options.strategy == resolved


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "no_buffer", "page_size": 16},
        {"strategy": "extra_buffer_lazy", "overlap": False},
    ],
)
def test_impossible_combinations_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="allowed"):
        options_from(options)
