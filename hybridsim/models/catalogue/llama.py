"""Attention-only models."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.ffn import MlpSpec
from hybridsim.models.spec import LayerSpec, ModelSpec


def llama_3_1_8b() -> ModelSpec:
    layer = LayerSpec(AttentionSpec(32, 8, 128), MlpSpec(14336))
    return ModelSpec(
        "llama-3.1-8b", (layer,) * 32, 4096, 128256, False,
        source="meta-llama/Llama-3.1-8B config.json", confidence="checked",
    )  # fmt: skip
