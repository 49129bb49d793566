"""The handbook's ledgers: every number of its two models."""

import pytest

from hybridsim.errors import UserError
from hybridsim.models import all_full, attention_only, get_model, ledger, ledger_rows

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    ("context", "full_mib", "hybrid_mib", "percent"),
    [
        (512, 48, 84, 175),
        (1024, 96, 96, 100),
        (4096, 384, 168, 44),
        (32768, 3072, 840, 27),
        (262144, 24576, 6216, 25),
    ],
)
def test_the_illustrative_models_ledger(context, full_mib, hybrid_mib, percent):
    (row,) = ledger_rows(get_model("handbook-48"), [context])
    assert row.all_full_bytes == full_mib * MIB
    assert row.hybrid_bytes == hybrid_mib * MIB
    assert round(row.ratio * 100) == percent


def test_the_illustrative_models_layers():
    spec = get_model("handbook-48")
    assert len(spec.layers) == 48
    assert [i for i, x in enumerate(spec.layers, 1) if x.mixer in spec.attention_layers] == list(
        range(4, 49, 4)
    )
    # 2 KV heads x 256 x (K, V) x 2 B; 32 x 128 x 128 x 4 B
    assert spec.attention_layers[0].kv_bytes_per_token(spec.dtypes) == 2 * KIB
    assert spec.recurrent_layers[0].state_bytes(spec.dtypes) == 2 * MIB
    assert spec.state_bytes == 72 * MIB
    assert ledger(spec).crossover_tokens == 1024


@pytest.mark.parametrize(("spacing", "times"), [(256, "12.0"), (1024, "3.0"), (4096, "0.8")])
def test_a_checkpoint_against_the_kv_of_its_tokens(spacing, times):
    (row,) = ledger_rows(get_model("handbook-48"), [spacing])
    assert f"{row.checkpoint_ratio:.1f}" == times


def test_qwen_0_8b_bytes():
    spec = get_model("qwen3.5-0.8b")
    assert "".join("F" if x.mixer in spec.attention_layers else "L" for x in spec.layers) == (
        "LLLF" * 6
    )
    assert spec.kv_bytes_per_token == 12 * KIB
    assert all_full(spec).kv_bytes_per_token == 48 * KIB
    assert spec.recurrent_bytes == 18 * MIB
    assert {x.conv.channels for x in spec.recurrent_layers} == {6144}
    assert spec.conv_bytes == 648 * KIB
    assert spec.with_conv_columns(1).conv_bytes == 864 * KIB
    assert [spec.kv_bytes(n) // KIB for n in (100, 1000, 3000)] == [1200, 12000, 36000]


def test_qwen_0_8b_crossover_with_the_columns_that_transformers_stores():
    # floor((18 MiB + 864 KiB) / 36 KiB)
    assert ledger(get_model("qwen3.5-0.8b").with_conv_columns(1)).crossover_tokens == 536


def test_qwen_0_8b_checkpoint_after_39_tokens():
    spec = get_model("qwen3.5-0.8b").with_conv_columns(1)
    assert spec.kv_bytes(39) == 468 * KIB
    assert f"{spec.state_bytes / MIB:.1f}" == "18.8"


def test_qwen_0_8b_parameters():
    spec = get_model("qwen3.5-0.8b")
    assert f"{spec.num_params / 1e6:.1f}" == "752.4"
    assert spec.num_active_params == spec.num_params
    assert (spec.hidden, spec.vocab, spec.tied) == (1024, 248320, True)


@pytest.mark.parametrize("name", ["handbook-48", "qwen3.5-0.8b", "kimi-linear-48b-a3b"])
def test_the_crossover_is_where_the_hybrid_begins_to_be_smaller(name):
    spec = get_model(name)
    at = ledger(spec).crossover_tokens
    before, after = ledger_rows(spec, [at, at + 1])
    assert before.hybrid_bytes >= before.all_full_bytes
    assert after.hybrid_bytes < after.all_full_bytes


@pytest.mark.parametrize("name", ["qwen3.5-4b", "nemotron-3-nano-30b-a3b", "jamba-1.5-mini"])
def test_the_attention_only_twin_has_the_kv_and_no_state(name):
    spec = get_model(name)
    twin = attention_only(spec)
    assert twin.kv_bytes_per_token == spec.kv_bytes_per_token
    assert twin.attention_layers == spec.attention_layers
    assert (twin.state_bytes, twin.recurrent_layers) == (0, ())
    assert all(layer.mixer or layer.ffn for layer in twin.layers)
    assert ledger(twin).crossover_tokens is None


def test_an_attention_only_model_has_no_crossover_and_no_checkpoint():
    figures = ledger(get_model("llama-3.1-8b"))
    assert (figures.crossover_tokens, figures.checkpoint_tokens, figures.state_bytes) == (
        None, None, 0,
    )  # fmt: skip


def test_a_model_without_attention_has_no_twin():
    layers = {"M": {"recurrent": {"kind": "mamba2", "num_key_heads": 1, "num_value_heads": 2,
                                  "key_dim": 4, "value_dim": 4}}}  # fmt: skip
    spec = get_model({"hidden": 8, "vocab": 8, "layers": layers, "pattern": "MM"})
    for twin in (attention_only, all_full):
        with pytest.raises(UserError, match="no attention layer"):
            twin(spec)
    assert ledger(spec).checkpoint_tokens is None
