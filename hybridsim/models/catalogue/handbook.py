"""The illustrative model of the memory ledger: 48 layers, every fourth with full attention."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.ffn import MlpSpec
from hybridsim.models.pattern import every_nth_full
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import ModelSpec


def handbook_48() -> ModelSpec:
    """2 KiB of KV per token and full layer, 2 MiB of state per linear layer, no convolution."""
    linear = recurrent("gated_deltanet", 16, 32, 128, 128)
    full = AttentionSpec(16, 2, 256, output_gate=True, qk_norm=True)
    layers = every_nth_full(48, 4, linear, full, MlpSpec(5120))
    source = "KV and state sizes of the handbook's ledger, widths like Qwen3-Next's"
    return ModelSpec(
        "handbook-48", layers, 2048, 151936, False, source=source, confidence="illustrative"
    )
