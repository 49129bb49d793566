"""MiniMax-01: lightning attention, softmax attention in every eighth layer, all with experts."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.dtypes import Dtypes
from hybridsim.models.ffn import MoeSpec
from hybridsim.models.pattern import every_nth_full
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import ModelSpec


def minimax_text_01() -> ModelSpec:
    """bf16 states, vLLM's default; fp32 doubles them."""
    lightning = recurrent("lightning", 64, 64, 128, 128)
    layers = every_nth_full(80, 8, lightning, AttentionSpec(64, 8, 128), MoeSpec(32, 2, 9216))
    return ModelSpec(
        "minimax-text-01", layers, 6144, 200064, False, Dtypes(state="bfloat16"),
        source="MiniMaxAI/MiniMax-Text-01 config.json", confidence="checked",
    )  # fmt: skip
