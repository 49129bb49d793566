"""Config fields of attention-only decoders: Llama, Mistral, Qwen2, Qwen3."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.ffn import MlpSpec
from hybridsim.models.fields import Fields
from hybridsim.models.spec import LayerSpec

GATED_ACTIVATIONS = ("silu", "swish", "gelu", "gelu_pytorch_tanh")


def head_dim(fields: Fields, num_heads: int) -> int:
    """The head width, or hidden / heads where the config does not say it."""
    hidden = fields.count("hidden_size")
    given = fields.get("head_dim", "attention_head_dim")
    if given is None and hidden % num_heads:
        raise fields.error("head_dim", f"missing, and {num_heads} heads do not divide {hidden}")
    return fields.count("head_dim", "attention_head_dim", default=hidden // num_heads)


def grouped_attention(
    fields: Fields, *, window: int | None = None, output_gate: bool = False,
    qk_norm: bool = False, bias: bool | None = None,
) -> AttentionSpec:  # fmt: skip
    """The grouped-query attention of the common field names."""
    heads = fields.count("num_attention_heads")
    kv_heads = fields.count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise fields.error("num_key_value_heads", f"{kv_heads} does not divide {heads} heads")
    has_bias = fields.flag("attention_bias") if bias is None else bias
    return AttentionSpec(
        heads, kv_heads, head_dim(fields, heads), window=window, output_gate=output_gate,
        qk_norm=qk_norm, qkv_bias=has_bias,
    )  # fmt: skip


def dense_layers(fields: Fields) -> tuple[LayerSpec, ...]:
    """Equal layers, except that some may see a window only."""
    model_type = fields.get("model_type")
    fields.require("hidden_act", GATED_ACTIVATIONS, default="silu")
    fields.require("mlp_bias", (False,), default=False)
    bias = True if model_type == "qwen2" else None
    full = grouped_attention(fields, qk_norm=model_type == "qwen3", bias=bias)
    windowed = full
    window = _window(fields)
    if window is not None:
        windowed = grouped_attention(
            fields, window=window, qk_norm=model_type == "qwen3", bias=bias
        )
    ffn = MlpSpec(fields.count("intermediate_size"))
    return tuple(
        LayerSpec(windowed if letter == "W" else full, ffn)
        for letter in _window_pattern(fields, window)
    )


def _window(fields: Fields) -> int | None:
    """Qwen says by a switch whether its window is in use; Mistral sets it to null."""
    window = fields.get("sliding_window")
    used = fields.flag("use_sliding_window", default=True)
    return fields.count("sliding_window") if used and window is not None else None


def _window_pattern(fields: Fields, window: int | None) -> str:
    num_layers = fields.num_layers()
    names = {"full_attention": "F", "sliding_attention": "W"}
    given = fields.choices("layer_types", num_layers, names)
    if given is not None:
        if "W" in given and window is None:
            raise fields.error("layer_types", "has sliding_attention layers but no sliding_window")
        return given
    first = fields.count("max_window_layers", default=0, least=0) if window is not None else 0
    letter = "F" if window is None else "W"
    return "F" * min(first, num_layers) + letter * max(num_layers - first, 0)
