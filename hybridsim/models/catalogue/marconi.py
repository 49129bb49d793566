"""The hybrid of the Marconi paper's default experiments: 24 SSM, 4 attention, 28 MLP layers."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.dtypes import Dtypes
from hybridsim.models.ffn import MlpSpec
from hybridsim.models.pattern import layers_of
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import LayerSpec, ModelSpec


def marconi_7b() -> ModelSpec:
    """Bytes as the artifact counts them (models/marconi.py has its FLOP formulas too).

    The paper gives counts of layers, not their order: attention is put in every seventh pair.
    """
    mamba = recurrent("marconi_mamba", 1, 4096, 128, 1, conv_kernel=4)
    letters = {
        "M": LayerSpec(mamba), "*": LayerSpec(AttentionSpec(32, 32, 128)),
        "-": LayerSpec(None, MlpSpec(16384, gated=False)),
    }  # fmt: skip
    fp16 = Dtypes(weights="float16", kv="float16", conv="float16", state="float16")
    spec = ModelSpec(
        "marconi-7b", layers_of("M-M-M-M-M-M-*-" * 4, letters), 4096, 32000, False, fp16,
        source="Marconi (MLSys'25, arXiv 2411.19379) and its artifact", confidence="paper",
    )  # fmt: skip
    return spec.with_conv_columns(1)
