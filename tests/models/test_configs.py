"""Models from config.json files, and what is said of wrong ones."""

import copy
import json
from dataclasses import replace

import pytest

from hybridsim.errors import UserError
from hybridsim.models import get_model
from tests.models.configs import (
    JAMBA,
    KIMI_LINEAR,
    LLAMA_3_1_8B,
    MINIMAX,
    NEMOTRON_3_NANO,
    PUBLISHED,
    QWEN3_NEXT,
    QWEN35_0_8B,
)


@pytest.fixture
def read(tmp_path):
    """Writes a config and reads it as a model."""

    def _read(config: dict):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return get_model(str(path))

    return _read


def changed(config: dict, **changes) -> dict:
    """A copy with keys set; `a__b` reaches into a nested object, ... removes."""
    result = copy.deepcopy(config)
    for path, value in changes.items():
        *parents, key = path.split("__")
        inner = result
        for parent in parents:
            inner = inner[parent]
        if value is ...:
            del inner[key]
        else:
            inner[key] = value
    return result


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configs_give_the_catalogues_models(name, read):
    ours = get_model(name)
    theirs = read(PUBLISHED[name])
    kept = {"name": ours.name, "source": ours.source, "confidence": ours.confidence}
    assert replace(theirs, **kept) == ours
    assert "config.json" in theirs.source


def test_a_folder_with_a_config_is_a_model_too(tmp_path, read):
    spec = read(LLAMA_3_1_8B)
    assert get_model(str(tmp_path)).layers == spec.layers
    assert spec.name == tmp_path.name


def test_layer_lists_and_intervals_say_the_same(read):
    by_list = read(QWEN35_0_8B)
    by_interval = read(changed(QWEN35_0_8B, text_config__layer_types=...))
    assert by_list.layers == by_interval.layers


def test_blocks_as_a_list(read):
    letters = {"M": "mamba", "E": "moe", "*": "attention"}
    pattern = NEMOTRON_3_NANO["hybrid_override_pattern"]
    by_list = changed(
        NEMOTRON_3_NANO,
        hybrid_override_pattern=...,
        layers_block_type=[letters[letter] for letter in pattern],
    )
    assert read(by_list).layers == read(NEMOTRON_3_NANO).layers


def test_formats_named_by_the_config(read):
    spec = read(changed(QWEN35_0_8B, text_config__mamba_ssm_dtype="bfloat16"))
    assert spec.dtypes.state == "bfloat16"
    fp8 = read(changed(QWEN3_NEXT, quantization_config={"quant_method": "fp8"}))
    assert (fp8.dtypes.weights, fp8.dtypes.kv) == ("float8", "bfloat16")


def test_dense_models_with_windows(read):
    mistral = changed(LLAMA_3_1_8B, model_type="mistral", sliding_window=4096)
    assert {x.window for x in read(mistral).attention_layers} == {4096}
    # Qwen2.5-7B: a window is given and switched off
    qwen2 = changed(
        LLAMA_3_1_8B, model_type="qwen2", sliding_window=131072, use_sliding_window=False,
        max_window_layers=28,
    )  # fmt: skip
    assert {x.window for x in read(qwen2).attention_layers} == {None}
    switched_on = read(qwen2 | {"use_sliding_window": True})
    assert [x.window for x in switched_on.attention_layers] == [None] * 28 + [131072] * 4
    # 7.6 B parameters as published; 7,615,616,512 by the hub's count
    shape = {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
             "num_key_value_heads": 4, "num_hidden_layers": 28, "vocab_size": 152064}  # fmt: skip
    assert read(qwen2 | shape).num_params == 7_615_616_512


def test_qwen3_dense_parameters(read):
    # Qwen3-8B: 8,190,735,360 by the hub's count
    qwen3 = LLAMA_3_1_8B | {
        "model_type": "qwen3", "head_dim": 128, "intermediate_size": 12288,
        "num_hidden_layers": 36, "vocab_size": 151936,
    }  # fmt: skip
    assert read(qwen3).num_params == 8_190_735_360


@pytest.mark.parametrize(
    ("config", "changes", "key", "says"),
    [
        (LLAMA_3_1_8B, {"model_type": "gemma3"}, "model_type", "allowed: .*llama"),
        (LLAMA_3_1_8B, {"model_type": ...}, "model_type", "unknown name 'None'"),
        (LLAMA_3_1_8B, {"model_type": "lama"}, "model_type", "did you mean 'llama'"),
        (LLAMA_3_1_8B, {"hidden_size": ...}, "hidden_size", "missing"),
        (
            LLAMA_3_1_8B,
            {"hidden_size": "4096"},
            "hidden_size",
            "'4096'; allowed: a whole number from 1",
        ),
        (LLAMA_3_1_8B, {"hidden_size": 4100}, "head_dim", "do not divide 4100"),
        (
            LLAMA_3_1_8B,
            {"num_hidden_layers": 0},
            "num_hidden_layers",
            "is 0; allowed: a whole number from 1",
        ),
        (LLAMA_3_1_8B, {"num_key_value_heads": 5}, "num_key_value_heads", "does not divide"),
        (LLAMA_3_1_8B, {"hidden_act": "relu"}, "hidden_act", "'relu' is not modelled"),
        (LLAMA_3_1_8B, {"mlp_bias": True}, "mlp_bias", "allowed: False"),
        (LLAMA_3_1_8B, {"torch_dtype": "float20"}, "torch_dtype", "unknown name 'float20'"),
        (LLAMA_3_1_8B, {"tie_word_embeddings": 1}, "tie_word_embeddings", "allowed: true, false"),
        (LLAMA_3_1_8B, {"num_experts": 8}, "num_experts", "not understood"),
        (LLAMA_3_1_8B, {"layer_types": ["full_attention"]}, "layer_types", "list of 32"),
        (LLAMA_3_1_8B, {"layer_types": ["mamba"] * 32}, "layer_types", "'mamba' is no known"),
        (LLAMA_3_1_8B, {"layer_types": ["sliding_attention"] * 32}, "layer_types", "no sliding_w"),
        (
            LLAMA_3_1_8B,
            {"quantization_config": {"quant_method": "gptq"}},
            "quantization_config",
            "'gptq' is not modelled",
        ),
        (QWEN35_0_8B, {"text_config__model_type": "qwen9"}, "model_type", "unknown name 'qwen9'"),
        (QWEN35_0_8B, {"text_config": [1]}, "text_config", "not an object"),
        (
            QWEN35_0_8B,
            {"text_config__linear_num_value_heads": ...},
            "linear_num_value_heads",
            "missing",
        ),
        (QWEN35_0_8B, {"text_config__attn_output_gate": False}, "attn_output_gate", "not modelled"),
        (QWEN3_NEXT, {"num_experts_per_tok": 600}, "num_experts_per_tok", "more than the 512"),
        (QWEN3_NEXT, {"use_sliding_window": True}, "use_sliding_window", "not modelled"),
        (QWEN3_NEXT, {"num_latent_heads": 4}, "num_latent_heads", "not understood"),
        (KIMI_LINEAR, {"linear_attn_config": None}, "linear_attn_config", "missing"),
        (
            KIMI_LINEAR,
            {"linear_attn_config__kda_layers": [1, 2, 3]},
            "full_attn_layers",
            "layers 1 to 27 once",
        ),
        (
            KIMI_LINEAR,
            {"linear_attn_config__use_full_rank_gate": True},
            "use_full_rank_gate",
            "not modelled",
        ),
        (KIMI_LINEAR, {"mla_use_output_gate": True}, "mla_use_output_gate", "not modelled"),
        (KIMI_LINEAR, {"moe_layer_freq": 2}, "moe_layer_freq", "allowed: 1"),
        (NEMOTRON_3_NANO, {"hybrid_override_pattern": "MEM"}, "hybrid_override_pattern", "52 let"),
        (NEMOTRON_3_NANO, {"mlp_hidden_act": "silu"}, "mlp_hidden_act", "allowed: 'relu2'"),
        (NEMOTRON_3_NANO, {"moe_latent_size": 1024}, "moe_latent_size", "not modelled"),
        (NEMOTRON_3_NANO, {"num_experts_per_tok": 129}, "num_experts_per_tok", "more than 128"),
        (JAMBA, {"attn_layer_offset": 8}, "attn_layer_offset", "not below the period 8"),
        (JAMBA, {"mamba_dt_rank": -1}, "mamba_dt_rank", "is -1; allowed: a whole number"),
        (MINIMAX, {"attn_type_list": ...}, "layer_types", "missing"),
        (MINIMAX, {"shared_intermediate_size": 64}, "shared_intermediate_size", "not modelled"),
    ],
)
def test_configs_that_are_refused(config, changes, key, says, read, tmp_path):
    with pytest.raises(UserError, match=says) as caught:
        read(changed(config, **changes))
    assert caught.value.place.startswith(str(tmp_path / "config.json"))
    assert caught.value.place.endswith(key)


def test_files_that_are_no_configs(tmp_path):
    with pytest.raises(UserError, match=r"absent\.json: cannot be read"):
        get_model(str(tmp_path / "absent.json"))
    broken = tmp_path / "broken.json"
    broken.write_text('{\n "a": }')
    with pytest.raises(UserError, match=r"broken\.json:2: is not valid JSON"):
        get_model(str(broken))
    broken.write_text("[1]")
    with pytest.raises(UserError, match="expected a JSON object"):
        get_model(str(broken))
