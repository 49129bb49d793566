"""Kimi Linear: Kimi Delta Attention with latent-attention layers between."""

from hybridsim.models.attention import AttentionSpec, LatentSpec
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import LayerSpec, ModelSpec

_FULL_LAYERS = (4, 8, 12, 16, 20, 24, 27)  # counted from 1


def kimi_linear_48b_a3b() -> ModelSpec:
    kda = recurrent("kda", 32, 32, 128, 128, conv_kernel=4)
    latent = LatentSpec(kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128)
    mla = AttentionSpec(32, 32, 192, latent=latent)
    dense, moe = MlpSpec(9216), MoeSpec(256, 8, 1024, shared_intermediate=1024, router_bias=True)
    layers = tuple(
        LayerSpec(mla if i in _FULL_LAYERS else kda, dense if i == 1 else moe) for i in range(1, 28)
    )
    source = "moonshotai/Kimi-Linear-48B-A3B-Instruct config.json"
    return ModelSpec(
        "kimi-linear-48b-a3b", layers, 2304, 163840, False, source=source, confidence="checked"
    )
