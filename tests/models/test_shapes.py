"""Shapes of the catalogue against numbers from elsewhere.

Bytes: the table of derived layouts of the vLLM 0.33.0 study, whose block sizes agree with logged
ones. Parameters: totals that the authors or the model hub publish.
"""

import subprocess
import sys

import pytest

from hybridsim.models import CATALOGUE, get_model

# model -> attention bytes per token and layer, recurrent bytes per layer, state format (of that
# table's engine), recurrent layers, attention layers
LAYOUTS = {
    "qwen3.5-0.8b": (2048, 1_085_440, "float32", 18, 6),
    "qwen3.5-4b": (4096, 2_146_304, "float32", 24, 8),
    "qwen3.5-9b": (4096, 2_146_304, "float32", 24, 8),
    "qwen3.5-27b": (4096, 3_207_168, "float32", 48, 16),
    "qwen3.5-35b-a3b": (2048, 2_146_304, "float32", 30, 10),
    "qwen3-next-80b-a3b": (2048, 1_097_728, "bfloat16", 36, 12),
    "kimi-linear-48b-a3b": (1152, 2_170_880, "float32", 20, 7),
    "nemotron-h-8b": (4096, 4_255_744, "float32", 24, 4),
    "nemotron-nano-9b-v2": (4096, 5_316_608, "float32", 27, 4),
    "nemotron-3-nano-30b-a3b": (1024, 2_134_016, "float32", 23, 6),
    "jamba-1.5-mini": (4096, 311_296, "bfloat16", 28, 4),
    "minimax-text-01": (4096, 2_097_152, "bfloat16", 70, 10),
}

# Block sizes of the same table: without and with 64-token alignment, with 3 draft tokens, with
# fp8 KV; the smallest kernel block (128 for latent attention). None: that engine's Mamba1 keeps no
# columns for drafts, so its block does not follow from ours.
BLOCKS = {
    "qwen3.5-0.8b": (544, 576, 560, 1072, 16),
    "qwen3.5-4b": (528, 576, 544, 1056, 16),
    "qwen3.5-27b": (784, 832, 800, 1568, 16),
    "qwen3.5-35b-a3b": (1056, 1088, 1072, 2096, 16),
    "qwen3-next-80b-a3b": (544, 576, 560, 1072, 16),
    "kimi-linear-48b-a3b": (1920, 1920, 2048, 3840, 128),
    "nemotron-h-8b": (1040, 1088, 1056, 2080, 16),
    "nemotron-nano-9b-v2": (1312, 1344, 1328, 2608, 16),
    "nemotron-3-nano-30b-a3b": (2096, 2112, 2128, 4176, 16),
    "jamba-1.5-mini": (80, 128, None, 160, 16),
    "minimax-text-01": (512, 512, 512, 1024, 16),
}


def layout(spec):
    attention, state = spec.attention_layers[0], spec.recurrent_layers[0]
    return attention.kv_bytes_per_token(spec.dtypes), state.state_bytes(spec.dtypes)


@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_of_a_layer(name):
    kv_bytes, state_bytes, state_dtype, num_recurrent, num_attention = LAYOUTS[name]
    spec = get_model(name).with_dtypes(state=state_dtype)
    assert layout(spec) == (kv_bytes, state_bytes)
    assert (len(spec.recurrent_layers), len(spec.attention_layers)) == (
        num_recurrent,
        num_attention,
    )
    assert len(set(spec.recurrent_layers)) == len(set(spec.attention_layers)) == 1
    assert spec.state_bytes == num_recurrent * state_bytes
    assert spec.kv_bytes_per_token == num_attention * kv_bytes


@pytest.mark.parametrize("name", BLOCKS)
def test_block_sizes_that_follow_from_the_bytes(name):
    plain, aligned, drafting, narrow, unit = BLOCKS[name]
    spec = get_model(name).with_dtypes(state=LAYOUTS[name][2])

    def block(spec, unit):
        kv_bytes, state_bytes = layout(spec)
        return unit * -(-state_bytes // (unit * kv_bytes))

    assert block(spec, unit) == plain
    assert block(spec, max(unit, 64)) == aligned
    if drafting is not None:
        assert block(spec.with_conv_columns(3), unit) == drafting
    assert block(spec.with_dtypes(kv="fp8"), unit) == narrow


def test_the_two_formulas_for_a_layers_bytes():
    key_heads, value_heads = 16, 48
    gdn = value_heads * 128 * 128 * 4 + 3 * (2 * key_heads * 128 + value_heads * 128) * 2
    heads, head_dim, state, groups = 128, 80, 128, 8
    mamba2 = heads * head_dim * state * 4 + 3 * (heads * head_dim + 2 * groups * state) * 2
    assert layout(get_model("qwen3.5-27b"))[1] == gdn
    assert layout(get_model("nemotron-nano-9b-v2"))[1] == mamba2


def test_marconis_model_has_the_papers_bytes():
    spec = get_model("marconi-7b")
    assert spec.state_bytes == 26_787_840
    assert spec.kv_bytes_per_token == 65_536
    assert spec.state_bytes / spec.kv_bytes_per_token == 408.75
    kinds = [type(layer.mixer or layer.ffn).__name__ for layer in spec.layers]
    assert [kinds.count(x) for x in ("RecurrentSpec", "AttentionSpec", "MlpSpec")] == [24, 4, 28]


# Billions of parameters as published: on the model's card or by the hub's count of its weights
# (text part, no drafting head), at the precision given there.
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("llama-3.1-8b", "8.03"),
        ("qwen3.5-9b", "9"),
        ("qwen3.5-27b", "27"),
        ("qwen3.5-35b-a3b", "35"),
        ("qwen3.5-122b-a10b", "122"),
        ("qwen3.5-397b-a17b", "396"),
        ("qwen3-next-80b-a3b", "80"),
        ("kimi-linear-48b-a3b", "49.1"),
        ("nemotron-h-8b", "8.1"),
        ("nemotron-nano-9b-v2", "8.89"),
        ("nemotron-3-nano-30b-a3b", "31.6"),
        ("jamba-1.5-mini", "51.6"),
        ("minimax-text-01", "456.09"),
        ("marconi-7b", "7"),
    ],
)
def test_parameters_in_all(name, total):
    digits = len(total.partition(".")[2])
    assert f"{get_model(name).num_params / 1e9:.{digits}f}" == total


@pytest.mark.parametrize(
    ("name", "active", "with_embeddings"),
    [
        ("minimax-text-01", "45.9", False),  # the paper's abstract
        ("nemotron-3-nano-30b-a3b", "3.6", True),  # the technical report, embeddings included
        ("jamba-1.5-mini", "12", True),  # the model card
        ("qwen3.5-122b-a10b", "10", True),  # these names say it
        ("qwen3.5-397b-a17b", "17", True),
        ("kimi-linear-48b-a3b", "3", False),
        ("qwen3-next-80b-a3b", "3", False),
    ],
)
def test_active_parameters(name, active, with_embeddings):
    spec = get_model(name)
    count = spec.num_active_params - (0 if with_embeddings else spec.embedding_params)
    digits = len(active.partition(".")[2])
    assert f"{count / 1e9:.{digits}f}" == active


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_row_says_its_own_name_and_where_it_is_from(name):
    spec = get_model(name)
    assert spec.name == name
    assert len(spec.source) > 10
    assert spec.confidence in ("checked", "paper", "illustrative")


def test_the_catalogue_needs_no_library():
    """Machines that only measure have neither pydantic nor orjson; kernels read shapes there."""
    program = (
        "import sys; sys.modules['pydantic'] = sys.modules['orjson'] = None\n"
        "from hybridsim.models import CATALOGUE\n"
        "print(sum(make().num_params > 0 for make in CATALOGUE.values()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(len(CATALOGUE)), done.stderr
