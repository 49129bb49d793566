"""Models from inline specs, and what is said of wrong ones."""

from dataclasses import replace

import pytest

from hybridsim.errors import UserError
from hybridsim.models import AttentionSpec, get_model

INLINE = {
    "name": "mine",
    "hidden": 1024,
    "vocab": 248320,
    "tied": True,
    "layers": {
        "L": {
            "recurrent": {
                "kind": "gated_deltanet", "num_key_heads": 16, "num_value_heads": 16,
                "key_dim": 128, "value_dim": 128, "conv_kernel": 4,
            },
            "mlp": {"intermediate": 3584},
        },
        "F": {
            "attention": {
                "num_heads": 8, "num_kv_heads": 2, "head_dim": 256, "output_gate": True,
                "qk_norm": True,
            },
            "mlp": {"intermediate": 3584},
        },
    },
    "pattern": "LLLF",
    "repeat": 6,
}  # fmt: skip


def test_an_inline_spec_equals_the_catalogues_model():
    spec, ours = get_model(INLINE), get_model("qwen3.5-0.8b")
    assert spec.name == "mine"
    assert replace(spec, name=ours.name, source=ours.source, confidence="checked") == ours


def test_changes_to_a_known_model():
    base = get_model("qwen3.5-0.8b")
    changes = {"dtypes": {"kv": "fp8", "state": "bf16"}, "extra_conv_columns": 1, "tp": 2}
    spec = get_model({"base": "qwen3.5-0.8b", **changes, "name": "small"})
    assert spec == replace(
        base.with_dtypes(kv="float8", state="bfloat16").with_conv_columns(1).for_rank(2),
        name="small",
    )
    twin = get_model({"base": {"base": "qwen3.5-0.8b"}, "twin": "attention_only"})
    assert (twin.state_bytes, twin.kv_bytes_per_token) == (0, base.kv_bytes_per_token)
    full = get_model({"base": "qwen3.5-0.8b", "twin": "all_full"})
    assert full.kv_bytes_per_token == 4 * base.kv_bytes_per_token


def test_windows_and_latents_inline():
    layers = {
        "W": {"attention": {"num_heads": 4, "head_dim": 8, "window": 128}},
        "A": {"attention": {"num_heads": 4, "head_dim": 8, "latent": {
            "kv_rank": 32, "rope_dim": 4, "nope_dim": 8, "value_dim": 8}}},
    }  # fmt: skip
    spec = get_model({"hidden": 32, "vocab": 100, "layers": layers, "pattern": "WA"})
    assert spec.attention_layers[0] == AttentionSpec(4, 4, 8, window=128)
    assert [x.kind for x in spec.attention_layers] == ["mha window 128", "mla"]
    # 2 x 4 x 8 x 2 B up to the window; (32 + 4) x 2 B for ever
    assert spec.kv_bytes(100) == 100 * (128 + 72)
    assert spec.kv_bytes(1000) == 128 * 128 + 1000 * 72


@pytest.mark.parametrize(
    ("value", "place", "says"),
    [
        ("qwen3.5-0.8", "model", "did you mean 'qwen3.5-0.8b'"),
        ("gpt-5", "model", "allowed: qwen3.5-0.8b, "),
        (17, "model", "17 is not a model"),
        (None, "model", "None is not a model"),
        ({}, "model.hidden", "required"),
        ({"base": "nothing"}, "model.base", "unknown name 'nothing'"),
        ({"base": "qwen3.5-4b", "tpp": 2}, "model.tpp", "did you mean 'tp'"),
        ({"base": "qwen3.5-4b", "tp": 3}, "model.tp", "does not divide"),
        ({"base": "qwen3.5-4b", "tp": "2"}, "model.tp", "'2'"),
        ({"base": "qwen3.5-4b", "dtypes": {"kv": "fp3"}}, "model.dtypes.kv", "unknown name 'fp3'"),
        ({"base": "qwen3.5-4b", "dtypes": {"kvs": "fp8"}}, "model.dtypes.kvs", "allowed: weights"),
        (
            {"base": "qwen3.5-4b", "dtypes": {"kv_scale_bytes": "4"}},
            "model.dtypes.kv_scale_bytes",
            "not a number of bytes",
        ),
        ({"base": "qwen3.5-4b", "twin": "evil"}, "model.twin", "attention_only"),
        (INLINE | {"hidden": -1}, "model.hidden", "-1: .*greater than or equal to 1"),
        (INLINE | {"pattern": "LLLG"}, "model.pattern", "unknown name 'G'; allowed: L, F"),
        (INLINE | {"layers": {"L": {}}}, "model.layers.L", "is empty"),
        (
            INLINE | {"layers": {"L": {"mlp": {"intermediat": 3}}}},
            "model.layers.L.mlp.intermediat",
            "did you mean 'intermediate'",
        ),
        (
            INLINE | {"layers": {"L": {"mlp": {"intermediate": 3}, "moe": {
                "num_experts": 2, "num_active": 1, "intermediate": 3}}}},
            "model.layers.L",
            "both mlp and moe",
        ),
        (
            INLINE | {"layers": {"L": {"moe": {
                "num_experts": 2, "num_active": 3, "intermediate": 3}}}},
            "model.layers.L.moe.num_active",
            "3 is more than num_experts 2",
        ),
        (
            INLINE | {"layers": {"L": {"recurrent": {
                "kind": "rwkv", "num_key_heads": 1, "num_value_heads": 1, "key_dim": 1,
                "value_dim": 1}}}},
            "model.layers.L.recurrent.kind",
            "allowed: gated_deltanet",
        ),
        (
            INLINE | {"layers": {"L": {"attention": {
                "num_heads": 4, "num_kv_heads": 3, "head_dim": 8}}}},
            "model.layers.L.attention.num_kv_heads",
            "does not divide num_heads 4",
        ),
    ],
)  # fmt: skip
def test_models_that_are_refused(value, place, says):
    with pytest.raises(UserError, match=says) as caught:
        get_model(value)
    assert caught.value.place == place
