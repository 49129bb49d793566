"""Config fields of linear-attention hybrids: Qwen3-Next and Qwen3.5, Kimi Linear, MiniMax-01."""

from hybridsim.models.attention import AttentionSpec, LatentSpec
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.fields import Fields
from hybridsim.models.hf_dense import GATED_ACTIVATIONS, grouped_attention
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import LayerSpec


def qwen_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Gated DeltaNet and gated full attention; dense or experts."""
    num_layers = fields.num_layers()
    fields.require("hidden_act", GATED_ACTIVATIONS, default="silu")
    fields.require("use_sliding_window", (False,), default=False)
    fields.require("attn_output_gate", (True,), default=True)
    key_heads, value_heads = (
        fields.count("linear_num_key_heads"),
        fields.count("linear_num_value_heads"),
    )
    linear = recurrent(
        "gated_deltanet", key_heads, value_heads, fields.count("linear_key_head_dim"),
        fields.count("linear_value_head_dim"), fields.count("linear_conv_kernel_dim"),
    )  # fmt: skip
    full = grouped_attention(fields, output_gate=True, qk_norm=True)
    names = {"linear_attention": "L", "full_attention": "F"}
    pattern = fields.choices("layer_types", num_layers, names)
    interval = fields.count("full_attention_interval", default=4)
    if pattern is None:
        pattern = "".join("F" if (i + 1) % interval == 0 else "L" for i in range(num_layers))
    return tuple(
        LayerSpec(full if letter == "F" else linear, _qwen_ffn(fields, i))
        for i, letter in enumerate(pattern)
    )


def _qwen_ffn(fields: Fields, index: int) -> MlpSpec | MoeSpec:
    num_experts = fields.count("num_experts", default=0, least=0)
    step = fields.count("decoder_sparse_step", default=1)
    dense_layers = fields.integers("mlp_only_layers")
    dense = num_experts == 0 or index in dense_layers or (index + 1) % step
    if dense:
        fields.get("moe_intermediate_size", "num_experts_per_tok")
        return MlpSpec(fields.count("intermediate_size"))
    fields.get("intermediate_size")
    return MoeSpec(
        num_experts,
        _num_active(fields, num_experts, "num_experts_per_tok"),
        fields.count("moe_intermediate_size"),
        fields.count("shared_expert_intermediate_size", default=0, least=0),
        shared_gate=True,
    )


def _num_active(fields: Fields, num_experts: int, *keys: str) -> int:
    num_active = fields.count(*keys)
    if num_active > num_experts:
        raise fields.error(keys[0], f"{num_active} is more than the {num_experts} experts")
    return num_active


def kimi_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Kimi Delta Attention and latent attention, by two lists of layers counted from 1."""
    num_layers = fields.num_layers()
    fields.require("hidden_act", GATED_ACTIVATIONS, default="silu")
    fields.require("mla_use_output_gate", (False,), default=False)
    nested = fields.get("linear_attn_config")
    if not isinstance(nested, dict):
        raise fields.error("linear_attn_config", "missing; expected an object")
    inner = Fields(nested, f"{fields.place}: linear_attn_config")
    heads, width = inner.count("num_heads"), inner.count("head_dim", default=128)
    inner.require("use_full_rank_gate", (False,), default=False)
    kernel = inner.count("short_conv_kernel_size", default=4)
    kda = recurrent("kda", heads, heads, width, width, conv_kernel=kernel)
    full_layers = _kimi_full_layers(inner, num_layers)
    mla = _kimi_attention(fields)
    inner.close()
    return tuple(
        LayerSpec(mla if i in full_layers else kda, _kimi_ffn(fields, i - 1))
        for i in range(1, num_layers + 1)
    )


def _kimi_full_layers(inner: Fields, num_layers: int) -> set[int]:
    full, kda = inner.integers("full_attn_layers"), inner.integers("kda_layers")
    if sorted([*full, *kda]) != list(range(1, num_layers + 1)):
        raise inner.error(
            "full_attn_layers",
            f"with kda_layers must name each of the layers 1 to {num_layers} once",
        )
    return set(full)


def _kimi_attention(fields: Fields) -> AttentionSpec:
    heads = fields.count("num_attention_heads")
    fields.get("num_key_value_heads", "head_dim")
    rank = fields.count("q_lora_rank", default=0, least=0)
    latent = LatentSpec(
        kv_rank=fields.count("kv_lora_rank"),
        rope_dim=fields.count("qk_rope_head_dim", least=0),
        nope_dim=fields.count("qk_nope_head_dim"),
        value_dim=fields.count("v_head_dim"),
        q_rank=rank or None,
    )
    return AttentionSpec(heads, heads, latent.nope_dim + latent.rope_dim, latent=latent)


def _kimi_ffn(fields: Fields, index: int) -> MlpSpec | MoeSpec:
    num_experts = fields.count("num_experts", default=0, least=0)
    first_moe = fields.count("first_k_dense_replace", default=0, least=0)
    fields.require("moe_layer_freq", (1,), default=1)
    keys = ("num_experts_per_token", "num_experts_per_tok")
    fields.get("intermediate_size", "moe_intermediate_size", "num_shared_experts", *keys)
    if num_experts == 0 or index < first_moe:
        return MlpSpec(fields.count("intermediate_size"))
    width = fields.count("moe_intermediate_size")
    shared = width * fields.count("num_shared_experts", default=0, least=0)
    num_active = _num_active(fields, num_experts, *keys)
    return MoeSpec(num_experts, num_active, width, shared, router_bias=True)


def minimax_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Lightning attention and grouped attention, experts in every layer."""
    num_layers = fields.num_layers()
    fields.require("hidden_act", GATED_ACTIVATIONS, default="silu")
    fields.require("shared_intermediate_size", (0, [0], None), default=0)
    fields.require("sliding_window", (None,))
    full = grouped_attention(fields)
    lightning = recurrent("lightning", full.num_heads, full.num_heads, full.head_dim, full.head_dim)
    by_number = fields.choices("attn_type_list", num_layers, {"0": "L", "1": "F"})
    names = {"linear_attention": "L", "full_attention": "F"}
    pattern = by_number or fields.choices("layer_types", num_layers, names)
    if pattern is None:
        raise fields.error("layer_types", "missing, and attn_type_list too; one is needed")
    num_experts = fields.count("num_local_experts")
    num_active = _num_active(fields, num_experts, "num_experts_per_tok")
    moe = MoeSpec(num_experts, num_active, fields.count("intermediate_size"))
    return tuple(LayerSpec(full if letter == "F" else lightning, moe) for letter in pattern)
