"""Nemotron-H and its successors: Mamba2, attention or a feed-forward part, one a layer."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.pattern import layers_of
from hybridsim.models.recurrent import RecurrentSpec, recurrent
from hybridsim.models.spec import LayerSpec, ModelSpec

_H_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
_NANO_9B_V2 = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
_NANO_30B = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"


def _nemotron(
    name: str, repo: str, pattern: str, hidden: int, mamba: RecurrentSpec,
    attention: AttentionSpec, ffn: MlpSpec | MoeSpec,
) -> ModelSpec:  # fmt: skip
    letters = {
        "M": LayerSpec(mamba), "*": LayerSpec(attention), "-": LayerSpec(None, ffn),
        "E": LayerSpec(None, ffn),
    }  # fmt: skip
    source = f"nvidia/{repo} config.json"
    layers = layers_of(pattern, letters)
    return ModelSpec(name, layers, hidden, 131072, False, source=source, confidence="checked")


def nemotron_h_8b() -> ModelSpec:
    return _nemotron(
        "nemotron-h-8b", "Nemotron-H-8B-Base-8K", _H_8B, 4096,
        recurrent("mamba2", 8, 128, 128, 64, conv_kernel=4),
        AttentionSpec(32, 8, 128), MlpSpec(21504, gated=False),
    )  # fmt: skip


def nemotron_nano_9b_v2() -> ModelSpec:
    return _nemotron(
        "nemotron-nano-9b-v2", "NVIDIA-Nemotron-Nano-9B-v2", _NANO_9B_V2, 4480,
        recurrent("mamba2", 8, 128, 128, 80, conv_kernel=4),
        AttentionSpec(40, 8, 128), MlpSpec(15680, gated=False),
    )  # fmt: skip


def nemotron_3_nano_30b_a3b() -> ModelSpec:
    moe = MoeSpec(128, 6, 1856, shared_intermediate=3712, gated=False, router_bias=True)
    return _nemotron(
        "nemotron-3-nano-30b-a3b", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", _NANO_30B, 2688,
        recurrent("mamba2", 8, 64, 128, 64, conv_kernel=4), AttentionSpec(32, 2, 128), moe,
    )  # fmt: skip
