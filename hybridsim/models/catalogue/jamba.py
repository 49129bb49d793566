"""Jamba: Mamba1 with attention in every eighth layer and experts in every second."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.dtypes import Dtypes
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import LayerSpec, ModelSpec


def jamba_1_5_mini() -> ModelSpec:
    """Its cache keeps states in the model's own bf16."""
    mamba = recurrent("mamba1", 1, 8192, 16, 1, conv_kernel=4, dt_rank=256)
    attention = AttentionSpec(32, 8, 128)
    dense, moe = MlpSpec(14336), MoeSpec(16, 2, 14336)
    layers = tuple(
        LayerSpec(attention if i % 8 == 4 else mamba, moe if i % 2 == 1 else dense)
        for i in range(32)
    )
    return ModelSpec(
        "jamba-1.5-mini", layers, 4096, 65536, False, Dtypes(state="bfloat16"),
        source="ai21labs/AI21-Jamba-1.5-Mini config.json", confidence="checked",
    )  # fmt: skip
