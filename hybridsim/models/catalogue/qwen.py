"""Qwen3.5 and Qwen3-Next: three Gated DeltaNet layers, then one full-attention layer."""

from hybridsim.models.attention import AttentionSpec
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.pattern import every_nth_full
from hybridsim.models.recurrent import recurrent
from hybridsim.models.spec import ModelSpec

_VOCAB = 248320
_CONFIG = "Qwen/{} config.json (text_config)"


def _qwen(
    name: str, repo: str, num_layers: int, hidden: int, heads: tuple[int, int],
    num_value_heads: int, ffn: MlpSpec | MoeSpec, *, tied: bool = False, vocab: int = _VOCAB,
) -> ModelSpec:  # fmt: skip
    """heads: query and KV heads of the full layers; linear layers all have 16 key heads of 128."""
    linear = recurrent("gated_deltanet", 16, num_value_heads, 128, 128, conv_kernel=4)
    full = AttentionSpec(heads[0], heads[1], 256, output_gate=True, qk_norm=True)
    layers = every_nth_full(num_layers, 4, linear, full, ffn)
    source = _CONFIG.format(repo)
    return ModelSpec(name, layers, hidden, vocab, tied, source=source, confidence="checked")


def _moe(num_experts: int, num_active: int, intermediate: int) -> MoeSpec:
    return MoeSpec(
        num_experts, num_active, intermediate, shared_intermediate=intermediate, shared_gate=True
    )


def qwen3_5_0_8b() -> ModelSpec:
    return _qwen("qwen3.5-0.8b", "Qwen3.5-0.8B", 24, 1024, (8, 2), 16, MlpSpec(3584), tied=True)


def qwen3_5_4b() -> ModelSpec:
    return _qwen("qwen3.5-4b", "Qwen3.5-4B", 32, 2560, (16, 4), 32, MlpSpec(9216), tied=True)


def qwen3_5_9b() -> ModelSpec:
    return _qwen("qwen3.5-9b", "Qwen3.5-9B", 32, 4096, (16, 4), 32, MlpSpec(12288))


def qwen3_5_27b() -> ModelSpec:
    return _qwen("qwen3.5-27b", "Qwen3.5-27B", 64, 5120, (24, 4), 48, MlpSpec(17408))


def qwen3_5_35b_a3b() -> ModelSpec:
    return _qwen("qwen3.5-35b-a3b", "Qwen3.5-35B-A3B", 40, 2048, (16, 2), 32, _moe(256, 8, 512))


def qwen3_5_122b_a10b() -> ModelSpec:
    return _qwen(
        "qwen3.5-122b-a10b", "Qwen3.5-122B-A10B", 48, 3072, (32, 2), 64, _moe(256, 8, 1024)
    )


def qwen3_5_397b_a17b() -> ModelSpec:
    return _qwen(
        "qwen3.5-397b-a17b", "Qwen3.5-397B-A17B", 60, 4096, (32, 2), 64, _moe(512, 10, 1024)
    )


def qwen3_next_80b_a3b() -> ModelSpec:
    """fp32 state as SGLang and transformers keep it; vLLM's default is bf16."""
    return _qwen(
        "qwen3-next-80b-a3b", "Qwen3-Next-80B-A3B-Instruct", 48, 2048, (16, 2), 32,
        _moe(512, 10, 512), vocab=151936,
    )  # fmt: skip
