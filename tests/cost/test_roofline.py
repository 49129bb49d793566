"""Laws of the roofline cost model, and steps worked out by hand."""

from dataclasses import replace
from itertools import chain, combinations, product
from math import fsum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.cost import GPUS, Efficiency, Gpu, PrefillChunk, RooflineCost, get_cost_model
from hybridsim.errors import UserError
from hybridsim.models import CATALOGUE, MoeSpec, get_model
from tests.models.strategies import attentions, models

PERFECT = Efficiency()  # the peak rates themselves, and no fixed times
H200 = GPUS["h200"]

# One cost model each for the laws: dense, experts, latent attention, Mamba1, lightning, one rank.
COSTS = {
    name: get_cost_model("h200", get_model(name))
    for name in ("llama-3.1-8b", "qwen3.5-0.8b", "jamba-1.5-mini", "minimax-text-01",
                 "nemotron-3-nano-30b-a3b", "marconi-7b")
}  # fmt: skip
COSTS["a rank of kimi"] = get_cost_model("a100", get_model("kimi-linear-48b-a3b"), tp=4)

costs = st.sampled_from(sorted(COSTS)).map(COSTS.__getitem__)
chunks = st.builds(PrefillChunk, st.integers(1, 9000), st.integers(0, 200_000))
chunk_lists = st.lists(chunks, max_size=4)
decodes = st.integers(0, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n * 100_000)))


@given(costs, chunk_lists, decodes, st.integers(0, 10**10))
def test_times_are_positive_and_the_sum_of_their_parts(cost, chunks, decode, copied_bytes):
    step_s = cost.step_s(chunks, *decode, copied_bytes)
    parts = cost.parts_s(chunks, *decode, copied_bytes)
    assert step_s == pytest.approx(fsum(parts.values()))
    assert all(part_s >= 0 for part_s in parts.values())
    is_empty = not chunks and decode[0] == 0 and copied_bytes == 0
    assert (step_s == 0) == is_empty


def at_most(shorter_s: float, longer_s: float) -> bool:
    return shorter_s <= longer_s * (1 + 1e-12)


@given(chunk_lists, decodes, st.integers(0, 60), st.integers(1, 50))
def test_a_layer_s_overhead_is_paid_by_every_step_that_computes(chunks, decode, us, num_steps):
    """qwen3.5-0.8b has 24 layers, each with a mixer and an FFN; a copy has none."""
    model, seconds = get_model("qwen3.5-0.8b"), us * 1e-6
    slow, plain = (
        RooflineCost(model, H200, PERFECT.changed({"layer_overhead_s": x})) for x in (seconds, 0.0)
    )
    extra_s = 24 * seconds if chunks or decode[0] else 0.0
    times_s = [cost.step_s(chunks, *decode, copied_bytes=1000) for cost in (plain, slow)]
    assert times_s[1] == pytest.approx(times_s[0] + extra_s)
    sums_s = [cost.decode_steps_s(num_steps, *decode) for cost in (plain, slow)]
    steps = num_steps if decode[0] else 0
    assert sums_s[1] == pytest.approx(sums_s[0] + steps * 24 * seconds)


@given(costs, chunk_lists, chunks, decodes, st.integers(1, 5000))
def test_more_work_never_takes_less_time(cost, others, chunk, decode, more):
    num_decodes, context = decode
    base_s = cost.step_s([*others, chunk], num_decodes, context, 1000)
    longer = replace(chunk, num_new_tokens=chunk.num_new_tokens + more)
    deeper = replace(chunk, num_prefix_tokens=chunk.num_prefix_tokens + more)
    for new_s in (
        cost.step_s([*others, longer], num_decodes, context, 1000),
        cost.step_s([*others, deeper], num_decodes, context, 1000),
        cost.step_s([*others, chunk, chunk], num_decodes, context, 1000),
        cost.step_s([*others, chunk], num_decodes + 1, context, 1000),
        cost.step_s([*others, chunk], num_decodes + 1, context + more, 1000),
        cost.step_s([*others, chunk], num_decodes, context, 1000 + more),
    ):
        assert at_most(base_s, new_s)


@given(costs, st.integers(1, 8000), st.integers(1, 8000), st.integers(0, 100_000))
def test_one_chunk_takes_no_longer_than_two(cost, first, second, prefix):
    whole_s = cost.step_s([PrefillChunk(first + second, prefix)], 0, 0)
    halves_s = cost.step_s([PrefillChunk(first, prefix)], 0, 0) + cost.step_s(
        [PrefillChunk(second, prefix + first)], 0, 0
    )
    assert at_most(whole_s, halves_s)


@given(costs, chunk_lists, decodes)
def test_a_batch_takes_no_longer_than_its_requests_in_turn(cost, chunks, decode):
    together_s = cost.step_s(chunks, *decode)
    in_turn_s = cost.step_s((), *decode) + fsum(cost.step_s([x], 0, 0) for x in chunks)
    assert at_most(together_s, in_turn_s)


@settings(max_examples=200)
@given(costs, st.integers(0, 60), st.integers(1, 400), st.integers(0, 3000))
def test_decode_steps_are_the_sum_of_single_steps(cost, num_steps, num_decodes, mean_context):
    context = num_decodes * mean_context
    steps_s = [cost.step_s((), num_decodes, context + i * num_decodes) for i in range(num_steps)]
    total_s = cost.decode_steps_s(num_steps, num_decodes, context)
    assert total_s == pytest.approx(fsum(steps_s), rel=1e-12)


@settings(max_examples=200)
@given(
    models(attention=attentions(windows=st.integers(1, 60))), st.integers(0, 80),
    st.integers(1, 12), st.integers(0, 700), st.floats(1e9, 1e15), st.floats(1e9, 1e13),
)  # fmt: skip
def test_the_same_with_windows_on_any_gpu(model, num_steps, num_decodes, context, flops, rate):
    """Odd GPUs put the crossing of compute and memory inside the range."""
    cost = RooflineCost(model, Gpu("odd", flops, rate, 1), PERFECT)
    steps_s = [cost.step_s((), num_decodes, context + i * num_decodes) for i in range(num_steps)]
    total_s = cost.decode_steps_s(num_steps, num_decodes, context)
    assert total_s == pytest.approx(fsum(steps_s), rel=1e-11)


def test_decode_steps_take_no_time_for_nobody():
    assert COSTS["llama-3.1-8b"].decode_steps_s(1000, 0, 0) == 0
    assert COSTS["llama-3.1-8b"].decode_steps_s(0, 5, 100) == 0


@given(st.sampled_from(sorted(CATALOGUE)), chunk_lists, decodes)
def test_no_step_beats_its_floors(name, chunks, decode):
    """FLOPs by the model's own counts and the weights that one pass must read."""
    model = get_model(name)
    cost = RooflineCost(model, H200, PERFECT)
    num_decodes, context = decode
    flops = (
        sum(model.prefill_flops(x.num_new_tokens, x.num_prefix_tokens).total for x in chunks)
        + num_decodes * model.decode_flops(0).total
    )
    kv_bytes = context * model.kv_bytes_per_token if num_decodes else 0
    state_bytes = 2 * num_decodes * model.state_bytes
    weight_bytes = 2 * model.active_matmul_params if chunks or num_decodes else 0
    step_s = cost.step_s(chunks, num_decodes, context)
    assert at_most(flops / H200.flops_per_s, step_s)
    assert at_most((weight_bytes + kv_bytes + state_bytes) / H200.hbm_bytes_per_s, step_s)


@given(chunk_lists, decodes)
def test_a_gpu_twice_as_fast_takes_half_the_time(chunks, decode):
    model = get_model("qwen3-next-80b-a3b")
    fast = replace(H200, flops_per_s=2 * H200.flops_per_s, hbm_bytes_per_s=2 * H200.hbm_bytes_per_s)
    slow_s = RooflineCost(model, H200, PERFECT).step_s(chunks, *decode)
    assert RooflineCost(model, fast, PERFECT).step_s(chunks, *decode) == pytest.approx(slow_s / 2)


def test_decode_of_one_request_streams_the_weights():
    """Llama 3.1 8B at batch 1: 7.5 G weights without the input embedding, 2 B each, plus KV."""
    model = get_model("llama-3.1-8b")
    step_s = RooflineCost(model, H200, PERFECT).step_s((), 1, 8191)
    weight_bytes = 2 * (8_030_261_248 - 128_256 * 4096)
    assert step_s == pytest.approx((weight_bytes + 8192 * 131072) / 4.8e12, rel=2e-3)


def test_a_long_prefill_computes_at_the_peak_rate():
    model = get_model("llama-3.1-8b")
    cost = RooflineCost(model, H200, PERFECT)
    parts = cost.parts_s([PrefillChunk(8192, 0)], 0, 0)
    per_layer = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
    assert parts["matmul"] == pytest.approx(2 * 8192 * 32 * per_layer / 989.4e12)
    pairs = 8192 * 8193 // 2
    assert parts["attention_prefill"] == pytest.approx(32 * pairs * 32 * 128 * 4 / 989.4e12)


def test_states_are_read_and_written_at_each_decode():
    parts = RooflineCost(get_model("qwen3.5-0.8b"), H200, PERFECT).parts_s((), 64, 0)
    # 19,537,920 B of state each way. Besides, 18 layers move elements of 2 B: 4 x 2048 of queries,
    # keys, values and outputs, and 3 x 2048 in and out of the convolution.
    moved_bytes = 64 * (2 * 19_537_920 + 18 * (4 + 2 * 3) * 2048 * 2)
    assert parts["scan_decode"] == pytest.approx(moved_bytes / 4.8e12)


def test_a_copy_reads_and_writes():
    cost = RooflineCost(get_model("qwen3.5-0.8b"), H200, PERFECT)
    assert cost.step_s((), 0, 0, copied_bytes=4_800_000) == pytest.approx(2e-6)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 3))
def test_expected_distinct_experts(num_experts, num_active, num_tokens):
    """Against the mean over all choices that the tokens can make."""
    num_active = min(num_active, num_experts)
    choices = list(combinations(range(num_experts), num_active))
    touched = [len(set(chain(*tokens))) for tokens in product(choices, repeat=num_tokens)]
    spec = MoeSpec(num_experts, num_active, 8)
    assert spec.num_touched_experts(num_tokens) == pytest.approx(sum(touched) / len(touched))


def test_expert_weights_are_read_as_far_as_they_are_touched():
    model = get_model("qwen3-next-80b-a3b")
    cost = RooflineCost(model, H200, PERFECT)
    # 48 layers, 10 of 512 experts of 3 x 2048 x 512 weights; inputs and outputs are a small extra.
    one_s = 48 * 10 * 3 * 2048 * 512 * 2 / 4.8e12
    assert cost.parts_s((), 1, 0)["experts"] == pytest.approx(one_s, rel=5e-3)
    all_s = 48 * 512 * 3 * 2048 * 512 * 2 / 4.8e12
    assert all_s * 0.98 < cost.parts_s((), 256, 0)["experts"] < all_s * 1.02


def test_ranks_pay_for_all_reduces():
    model = get_model("qwen3.5-27b")
    parts = RooflineCost(model.for_rank(4), H200, PERFECT).parts_s([PrefillChunk(1000, 0)], 0, 0)
    # 128 sublayers, 1000 x 5120 x 2 B, 2 x 3/4 of them over 450 GB/s
    assert parts["allreduce"] == pytest.approx(128 * 1000 * 5120 * 2 * 1.5 / 450e9)
    assert "allreduce" not in RooflineCost(model, H200).parts_s([PrefillChunk(1000, 0)], 0, 0)
    with pytest.raises(UserError, match="link_bytes_per_s"):
        RooflineCost(model.for_rank(4), replace(H200, link_bytes_per_s=None))


def test_fp8_weights_double_rate_and_halve_bytes():
    model = get_model("llama-3.1-8b")
    narrow = RooflineCost(model.with_dtypes(weights="fp8"), H200, PERFECT)
    wide = RooflineCost(model, H200, PERFECT)
    chunk = [PrefillChunk(8192, 0)]
    ratio = wide.parts_s(chunk, 0, 0)["matmul"] / narrow.parts_s(chunk, 0, 0)["matmul"]
    assert ratio == pytest.approx(1978.9 / 989.4)
    ratio = wide.parts_s((), 1, 0)["matmul"] / narrow.parts_s((), 1, 0)["matmul"]
    assert ratio == pytest.approx(2, rel=1e-2)
