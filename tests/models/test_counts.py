"""Parameters and operations against lists of matrices and brute-force counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.errors import UserError
from hybridsim.models import AttentionSpec, LatentSpec, MoeSpec, get_model
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.models.recurrent import recurrent
from tests.models.strategies import attentions, models, recurrents

dims = st.integers(1, 9)


def elements(*shapes: tuple[int, ...]) -> int:
    total = 0
    for shape in shapes:
        size = 1
        for width in shape:
            size *= width
        total += size
    return total


# The tensors of each layer, as its published model code declares them.


@given(dims, dims, dims, dims, dims, dims)
def test_gated_deltanet_tensors(hidden, key_heads, value_heads, key_dim, value_dim, kernel):
    kernel += 1
    spec = recurrent("gated_deltanet", key_heads, value_heads, key_dim, value_dim, kernel)
    keys, values = key_heads * key_dim, value_heads * value_dim
    matrices = elements(
        (hidden, 2 * keys + values), (hidden, values), (hidden, value_heads),
        (hidden, value_heads), (values, hidden),
    )  # fmt: skip
    rest = elements((2 * keys + values, kernel), (value_heads,), (value_heads,), (value_dim,))
    assert (spec.matmul_params(hidden), spec.other_params(hidden)) == (matrices, rest)


@given(dims, dims, dims)
def test_kda_tensors(hidden, heads, dim):
    spec = recurrent("kda", heads, heads, dim, dim, 4)
    width = heads * dim
    matrices = elements(
        (hidden, width), (hidden, width), (hidden, width), (hidden, dim), (dim, width),
        (hidden, heads), (hidden, dim), (dim, width), (width, hidden),
    )  # fmt: skip
    rest = elements((width, 4), (width, 4), (width, 4), (heads,), (width,), (dim,))
    assert (spec.matmul_params(hidden), spec.other_params(hidden)) == (matrices, rest)


@given(dims, dims, dims, dims, dims)
def test_mamba2_tensors(hidden, groups, heads, state, head_dim):
    spec = recurrent("mamba2", groups, heads, state, head_dim, 4)
    inner, channels = heads * head_dim, heads * head_dim + 2 * groups * state
    matrices = elements((hidden, inner + channels + heads), (inner, hidden))
    rest = elements((channels, 4), (channels,), (heads,), (heads,), (heads,), (inner,))
    assert (spec.matmul_params(hidden), spec.other_params(hidden)) == (matrices, rest)


@given(dims, dims, dims, dims)
def test_mamba1_tensors(hidden, inner, state, dt_rank):
    spec = recurrent("mamba1", 1, inner, state, 1, 4, dt_rank)
    matrices = elements(
        (hidden, 2 * inner), (inner, dt_rank + 2 * state), (dt_rank, inner), (inner, hidden)
    )
    rest = elements(
        (inner, 4), (inner,), (inner,), (inner, state), (inner,), (dt_rank,), (state,), (state,)
    )
    assert (spec.matmul_params(hidden), spec.other_params(hidden)) == (matrices, rest)
    assert spec.conv.channels == inner


@given(dims, dims, dims)
def test_lightning_tensors(hidden, heads, dim):
    spec = recurrent("lightning", heads, heads, dim, dim)
    width = heads * dim
    matrices = elements((hidden, 3 * width), (hidden, width), (width, hidden))
    assert (spec.matmul_params(hidden), spec.other_params(hidden)) == (matrices, width)


@given(dims, dims, dims, dims, dims, dims, st.none() | dims)
def test_latent_attention_tensors(hidden, heads, rank, rope, nope, value, q_rank):
    latent = LatentSpec(rank, rope, nope, value, q_rank)
    spec = AttentionSpec(heads, heads, nope + rope, latent=latent)
    query = heads * (nope + rope)
    queries = [(hidden, query)] if q_rank is None else [(hidden, q_rank), (q_rank, query)]
    matrices = elements(
        *queries, (hidden, rank + rope), (rank, heads * (nope + value)), (heads * value, hidden)
    )
    assert spec.matmul_params(hidden) == matrices
    assert spec.other_params(hidden) == rank + (q_rank or 0)


@pytest.mark.parametrize("gate", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_grouped_attention_tensors(gate, bias):
    spec = AttentionSpec(6, 2, 5, output_gate=gate, qk_norm=True, qkv_bias=bias)
    queries = 6 * 5 * (2 if gate else 1)
    matrices = elements((7, queries), (7, 10), (7, 10), (30, 7))
    assert spec.matmul_params(7) == matrices
    assert spec.other_params(7) == 10 + (queries + 20 if bias else 0)


@pytest.mark.parametrize("gated", [False, True])
def test_expert_tensors(gated):
    spec = MoeSpec(5, 2, 3, 4, gated=gated, shared_gate=True, router_bias=True)
    n = 3 if gated else 2
    # router, shared experts, their gate; then experts
    dense = 7 * 5 + n * 7 * 4 + 7
    assert spec.matmul_params(7) == dense + 5 * n * 7 * 3
    assert spec.active_matmul_params(7) == dense + 2 * n * 7 * 3
    assert spec.other_params(7) == 5


@given(attentions(), st.integers(1, 60), st.integers(0, 120))
def test_pairs_under_the_causal_mask_and_window(spec, num_tokens, num_prefix):
    brute = 0
    for query in range(num_prefix, num_prefix + num_tokens):
        first = 0 if spec.window is None else max(0, query - spec.window + 1)
        brute += query + 1 - first
    assert spec.num_pairs(num_tokens, num_prefix) == brute
    assert spec.num_visible(num_prefix) == spec.num_pairs(1, num_prefix)


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, 300))
def test_attention_flops_of_chunks_add_up(first, second, prefix):
    layers = get_model("llama-3.1-8b").attention_layers
    spec = layers[0]
    whole = spec.prefill_flops(first + second, prefix)
    assert whole == spec.prefill_flops(first, prefix) + spec.prefill_flops(second, prefix + first)


@given(st.integers(0, 5000))
def test_decoding_is_prefill_of_one_token_for_grouped_attention(context):
    spec = get_model("llama-3.1-8b")
    assert spec.decode_flops(context) == spec.prefill_flops(1, context)


def test_llama_flops_by_hand():
    flops = get_model("llama-3.1-8b").prefill_flops(1000)
    per_layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert flops.matmul == 2 * 1000 * 32 * per_layer
    # 1 + 2 + ... + 1000 pairs, 32 heads, 128 multiply-adds for the score and for the value
    assert flops.attention == 32 * 500500 * 32 * 128 * 2 * 2
    assert (flops.scan, flops.head) == (0, 2 * 4096 * 128256)
    assert flops.total == flops.matmul + flops.attention + flops.head


def test_latent_attention_decodes_on_the_latent():
    layer = get_model("kimi-linear-48b-a3b").attention_layers[0]
    # 32 heads: score over 512 + 64, value over 512
    assert layer.decode_flops_per_key() == 2 * 32 * (576 + 512)
    # 3 pairs on 192-wide keys and 128-wide values; 1 earlier latent expanded to 32 x (128 + 128)
    assert layer.prefill_flops(2, 1) == 2 * 5 * 32 * 320 + 2 * 512 * 32 * 256


def test_delta_rule_flops_by_hand():
    layer = recurrent("gated_deltanet", 1, 1, 128, 128)
    assert layer.decode_flops() == 7 * 128 * 128
    # 64 tokens: K K^T, W and Q K^T over 128 keys, U and A V over 128 values; inverse 2 x 64^3 / 3;
    # W S, Q S, K^T V
    chunk = 2 * 64 * 64 * (3 * 128 + 2 * 128) + 2 * 64**3 // 3 + 3 * 2 * 64 * 128 * 128
    assert layer.prefill_flops(64) == chunk
    assert layer.prefill_flops(65) == 2 * chunk
    assert layer.prefill_flops(0) == 0


@given(recurrents(), st.integers(0, 300), st.integers(0, 300))
def test_scans_rise_and_never_gain_by_being_cut(spec, first, second):
    whole = spec.prefill_flops(first + second)
    assert spec.prefill_flops(first) <= whole
    assert whole <= spec.prefill_flops(first) + spec.prefill_flops(second)


@given(models())
def test_active_parameters_are_some_of_all(spec):
    has_experts = any(isinstance(ffn, MoeSpec) for ffn in spec.ffn_layers)
    assert 0 < spec.num_active_params <= spec.num_params
    if not has_experts:
        assert spec.num_active_params == spec.num_params


@given(models(), st.sampled_from([1, 2, 4, 8]))
def test_ranks_together_hold_the_model(spec, tp):
    rank = spec.for_rank(tp)
    # Value heads are split and never copied; the convolution may copy key channels.
    assert rank.recurrent_bytes * tp == spec.recurrent_bytes
    assert spec.conv_bytes <= rank.conv_bytes * tp <= spec.conv_bytes * tp
    assert spec.kv_bytes_per_token <= rank.kv_bytes_per_token * tp <= spec.kv_bytes_per_token * tp
    assert spec.num_params <= rank.num_params * tp
    assert rank.tp == tp


def test_kv_heads_replicate_and_latents_are_copied():
    qwen, kimi = get_model("qwen3.5-35b-a3b"), get_model("kimi-linear-48b-a3b")
    per_rank = [qwen.for_rank(tp).kv_bytes_per_token for tp in (1, 2, 4, 8)]
    assert per_rank == [20480, 10240, 10240, 10240]
    assert kimi.for_rank(8).kv_bytes_per_token == kimi.kv_bytes_per_token
    assert kimi.for_rank(8).recurrent_bytes * 8 == kimi.recurrent_bytes


def test_a_dense_rank_has_its_share_of_the_matrices():
    spec = get_model("qwen3.5-27b")
    rank = spec.for_rank(4)
    assert rank.active_matmul_params * 4 == spec.active_matmul_params
    assert rank.head_params * 4 == spec.head_params


@pytest.mark.parametrize("tp", [3, 0, -2, True, 2.0, "2"])
def test_impossible_numbers_of_ranks(tp):
    with pytest.raises(UserError, match=r"^tp: "):
        get_model("qwen3.5-0.8b").for_rank(tp)


def test_a_rank_is_not_cut_again():
    rank = get_model("qwen3.5-0.8b").for_rank(2)
    assert rank.for_rank(1) is rank
    with pytest.raises(UserError, match="already one rank of 2"):
        rank.for_rank(2)


def test_quantised_bytes():
    spec = get_model("qwen3.5-4b")
    assert spec.with_dtypes(kv="fp8").kv_bytes_per_token * 2 == spec.kv_bytes_per_token
    assert spec.with_dtypes(weights="int4").weight_bytes == -(-spec.num_params // 2)
    assert spec.weight_bytes == 2 * spec.num_params
    with pytest.raises(UserError, match="dtypes.kv"):
        spec.with_dtypes(kv="fp7")


def test_marconis_formulas_at_its_default_model():
    ours = MarconiFormulas()
    assert (ours.state_bytes, ours.kv_bytes_per_token) == (26_787_840, 65_536)
    d, n, tokens = 4096, 128, 100
    assert ours.attention_flops(tokens) == 8 * tokens * d**2 + 4 * tokens**2 * d
    assert ours.mlp_flops(tokens) == 16 * tokens * d**2
    assert ours.ssm_flops(tokens) == 12 * tokens * d**2 + 16 * tokens * d * n + 10 * tokens * d
    # The paper's example: 10k tokens with a state every 16 take 17.4 GB, 3.3 times the KV of a
    # transformer with 32 layers.
    size_bytes = 10_000 // 16 * ours.state_bytes + 10_000 * ours.kv_bytes_per_token
    assert f"{size_bytes / 1e9:.1f}" == "17.4"
    assert f"{size_bytes / (10_000 * 32 * 4 * d):.1f}" == "3.3"


@given(st.integers(0, 3000), st.integers(1, 3000))
def test_marconis_saved_flops(parent, edge):
    ours = MarconiFormulas()
    saved = ours.saved_flops(parent + edge, parent)
    # Every term is linear or a difference of prefixes, so nodes along a path add up to its prefill.
    assert saved + ours.prefill_flops(parent) == ours.prefill_flops(parent + edge)
    size_bytes = 26_787_840 + 65_536 * (parent + edge)
    assert ours.flops_per_byte(parent + edge, parent) == saved / size_bytes
