"""Config fields of Mamba hybrids: Nemotron-H and Jamba."""

from collections.abc import Callable

from hybridsim.errors import shorten
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.fields import Fields
from hybridsim.models.hf_dense import GATED_ACTIVATIONS, grouped_attention
from hybridsim.models.pattern import layers_of
from hybridsim.models.recurrent import RecurrentSpec, recurrent
from hybridsim.models.spec import LayerSpec

_BLOCK_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def nemotron_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Mamba2, attention, MLP and expert layers in the order of the pattern."""
    num_layers = fields.num_layers()
    pattern = fields.choices("layers_block_type", num_layers, _BLOCK_LETTERS)
    text = fields.get("hybrid_override_pattern")
    if pattern is None:
        pattern = text
    if not isinstance(pattern, str) or len(pattern) != num_layers or set(pattern) - set("M*-E"):
        raise fields.error(
            "hybrid_override_pattern",
            f"is {shorten(repr(pattern))}; allowed: {num_layers} letters of M, *, - and E",
        )
    letters = {"M": LayerSpec(_mamba2(fields)), "*": LayerSpec(grouped_attention(fields))}
    act = fields.get("mlp_hidden_act", default="relu2")
    if act != "relu2":
        raise fields.error(
            "mlp_hidden_act", f"{shorten(repr(act))} is not modelled; allowed: 'relu2'"
        )
    fields.require("mlp_bias", (False,), default=False)
    fields.get("intermediate_size", "n_routed_experts", "moe_intermediate_size", "n_shared_experts")
    fields.get("num_experts_per_tok", "moe_shared_expert_intermediate_size")
    if "-" in pattern:
        letters["-"] = LayerSpec(None, MlpSpec(fields.count("intermediate_size"), gated=False))
    if "E" in pattern:
        letters["E"] = LayerSpec(None, _nemotron_moe(fields))
    return layers_of(pattern, letters)


def _mamba2(fields: Fields) -> RecurrentSpec:
    fields.require("mamba_proj_bias", (False,), default=False)
    fields.require("use_bias", (False,), default=False)
    fields.require("use_conv_bias", (True,), default=True)
    return recurrent(
        "mamba2",
        fields.count("n_groups", "mamba_num_groups"),
        fields.count("mamba_num_heads"),
        fields.count("ssm_state_size", "mamba_state_dim", "mamba_d_state"),
        fields.count("mamba_head_dim"),
        conv_kernel=fields.count("conv_kernel", "mamba_d_conv", default=4),
    )


def _nemotron_moe(fields: Fields) -> MoeSpec:
    fields.require("moe_latent_size", (None,))
    num_experts = fields.count("n_routed_experts")
    num_active = fields.count("num_experts_per_tok")
    if num_active > num_experts:
        raise fields.error(
            "num_experts_per_tok", f"{num_active} is more than {num_experts} experts"
        )
    num_shared = fields.count("n_shared_experts", default=0, least=0)
    shared = num_shared * fields.count("moe_shared_expert_intermediate_size", default=0, least=0)
    width = fields.count("moe_intermediate_size")
    return MoeSpec(num_experts, num_active, width, shared, gated=False, router_bias=True)


def jamba_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Mamba1 with attention and experts at their own periods."""
    num_layers = fields.num_layers()
    hidden = fields.count("hidden_size")
    fields.require("hidden_act", GATED_ACTIVATIONS, default="silu")
    fields.require("mamba_proj_bias", (False,), default=False)
    fields.require("mamba_conv_bias", (True,), default=True)
    fields.require("sliding_window", (None,))
    inner = fields.count("mamba_expand", default=2) * hidden
    # "auto" is a sixteenth of the width, rounded up, as in Mamba's own code.
    if fields.get("mamba_dt_rank", default="auto") == "auto":
        dt_rank = -(-hidden // 16)
    else:
        dt_rank = fields.count("mamba_dt_rank")
    mamba = recurrent(
        "mamba1", 1, inner, fields.count("mamba_d_state", default=16), 1,
        conv_kernel=fields.count("mamba_d_conv", default=4), dt_rank=dt_rank,
    )  # fmt: skip
    attention = grouped_attention(fields)
    is_attention = _at_period(fields, "attn_layer", 8, 4)
    is_moe = _at_period(fields, "expert_layer", 2, 1)
    width, num_experts = fields.count("intermediate_size"), fields.count("num_experts", default=16)
    dense, moe = MlpSpec(width), MoeSpec(num_experts, _jamba_active(fields, num_experts), width)
    return tuple(
        LayerSpec(
            attention if is_attention(i) else mamba, moe if is_moe(i) and num_experts > 1 else dense
        )
        for i in range(num_layers)
    )


def _jamba_active(fields: Fields, num_experts: int) -> int:
    num_active = fields.count("num_experts_per_tok", default=min(2, num_experts))
    if num_active > num_experts:
        raise fields.error(
            "num_experts_per_tok", f"{num_active} is more than {num_experts} experts"
        )
    return num_active


def _at_period(
    fields: Fields, prefix: str, period_default: int, offset_default: int
) -> Callable[[int], bool]:
    """Whether a layer (from 0) is one of those at `offset` in every `period`."""
    period = fields.count(f"{prefix}_period", default=period_default)
    offset = fields.count(f"{prefix}_offset", default=offset_default, least=0)
    if offset >= period:
        raise fields.error(f"{prefix}_offset", f"{offset} is not below the period {period}")
    return lambda index: index % period == offset
