"""No engine beats the bound of its row, on many small traces and tight memories."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hybridsim.build import build_cache
from hybridsim.config import RunConfig, validate
from hybridsim.records import MissReason
from hybridsim.request import Request, Spans
from hybridsim.sweep.brackets import Done, best_possible
from tests.analysis.workloads import traces

TRACE = {"format": "generate", "generator": "chat", "num_sessions": 1}


def scaled(requests, factor):
    """Each token becomes a stretch of so many."""

    def longer(spans):
        return Spans(spans.ids, spans.ends * factor, spans.num_tokens * factor)

    return [replace(r, prompt=longer(r.prompt), output=longer(r.output)) for r in requests]


def served(engine, cache, requests, model="qwen3.5-0.8b", num_warmup=0):
    """A finished run and its token hit rate."""
    config = {"trace": TRACE, "model": model, "engine": engine, "cache": cache}
    built = build_cache(validate(RunConfig, config))
    records = built.replay(requests, [r.num_prompt_tokens for r in requests], lambda *_: None)
    measured = records[num_warmup:]
    total = sum(record.num_prompt_tokens for record in measured)
    hits = sum(record.num_hit_tokens for record in measured)
    return Done(built, requests, num_warmup, records), hits / total if total else 0.0


def check(engine, cache, requests, **options):
    done, hit_rate = served(engine, cache, requests, **options)
    best = best_possible(done)
    assert hit_rate <= best.bound + 1e-9
    assert best.feasible <= best.bound + 1e-9
    return done, best


SGLANG = st.fixed_dictionaries(
    {
        "name": st.just("sglang-0.5.23"),
        "chunk_size": st.sampled_from([1, 2]),
        "track_interval": st.sampled_from([2, 4]),
        "chunked_prefill_size": st.sampled_from([4, 64]),
        "overlap": st.booleans(),
        "eviction_policy": st.sampled_from(["lru", "lfu", "fifo", "mru", "slru"]),
    },
    optional={"skip_decode_lock": st.booleans(), "max_states_per_path": st.integers(1, 3)},
)
MANY = traces(max_requests=14, max_tokens=14)


@settings(max_examples=60)
@given(SGLANG, MANY, st.integers(14, 50), st.integers(3, 8), st.integers(0, 2))
def test_sglang_does_not(engine, requests, kv_tokens, state_slots, num_warmup):
    cache = {"kv_tokens": kv_tokens, "state_slots": state_slots}
    check(engine, cache, requests, num_warmup=num_warmup)


@settings(max_examples=60)
@given(SGLANG, MANY, st.integers(14, 50), st.integers(3, 6), st.integers(1, 5))
def test_sglang_with_int8_checkpoints_does_not(engine, requests, kv_tokens, slots, checkpoints):
    engine = {**engine, "int8_ckpt": True, "int8_ckpt_size": checkpoints}
    check(engine, {"kv_tokens": kv_tokens, "state_slots": slots}, requests)


@settings(max_examples=60)
@given(
    SGLANG, MANY, st.integers(14, 50), st.integers(3, 8), st.integers(1, 6), st.integers(2, 40)
)  # fmt: skip
def test_sglang_with_a_sliding_window_does_not(engine, requests, kv_tokens, slots, window, spare):
    engine = {**engine, "sliding_window": window, "swa_tokens": window + 1 + spare}
    check(engine, {"kv_tokens": kv_tokens, "state_slots": slots}, requests)


@settings(max_examples=60)
@given(
    traces(max_requests=10, max_tokens=12),
    st.sampled_from(["0.33.0", "0.27.1"]),
    st.integers(10, 60),
    st.booleans(),
    st.sampled_from([1000, 2200, 32768]),
)
def test_vllm_does_not(requests, version, num_blocks, abort_stuck, longest):
    engine = {"name": f"vllm-{version}", "abort_stuck": abort_stuck, "max_model_len": longest}
    engine |= {"max_num_batched_tokens": 700, "max_num_seqs": 8, "check_startup": False}
    check(engine, {"num_blocks": num_blocks}, scaled(requests, 200))


@settings(max_examples=60)
@given(
    traces(max_requests=14, max_tokens=14),
    st.sampled_from(["v1", "v2", "v3", "vllm_plus"]),
    st.sampled_from(["artifact", "corrected"]),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.integers(60, 600),
)
def test_marconi_does_not_even_where_it_overshoots(requests, policy, variant, alpha, megabytes):
    """marconi-7b: 64 KiB a token, some 26 MB a state; prompts of up to 1,400 tokens."""
    engine = {"name": "marconi", "policy": policy, "variant": variant, "alpha": alpha}
    cache = {"memory": megabytes * 10**6, "layout": "shared"}
    check(engine, cache, scaled(requests, 100), model="marconi-7b")


@settings(max_examples=40)
@given(traces(max_requests=14), st.integers(1, 20), st.integers(0, 3))
def test_block_lru_does_not(requests, num_blocks, num_warmup):
    check("block_lru", {"num_blocks": num_blocks}, requests, num_warmup=num_warmup)


def test_what_was_refused_is_not_hoped_for():
    """SGLang asks for room for the output and a page beside the prompt, so B of 12 + 4 is refused
    from 16 tokens; what A leaves could have been hit by C alone."""
    prompt = [(1, 6), (2, 6)]
    a, b, c = (
        replace(request, request_id=name)
        for name, request in zip(
            "abc", [request_of(prompt[:1], 1), request_of(prompt, 4), request_of(prompt[:1], 1)],
            strict=True,
        )
    )  # fmt: skip
    engine = {"name": "sglang-0.5.23", "chunk_size": 1, "track_interval": 1}
    done, best = check(engine, {"kv_tokens": 16, "state_slots": 8}, [a, b, c])
    assert [r.miss_reason == MissReason.REFUSED for r in done.records] == [False, True, False]
    # C may hit 5 of its 6 tokens; the rate counts B's prompt as well: 6 + 12 + 6.
    assert best.bound == pytest.approx(5 / 24)
    assert best.feasible == pytest.approx(5 / 24)


def request_of(pairs, num_output_tokens):
    return Request("", Spans.of(pairs), Spans.unknown(num_output_tokens))
