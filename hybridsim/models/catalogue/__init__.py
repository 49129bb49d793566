"""The catalogue: known models by name. Every row says where its shape is from."""

from collections.abc import Callable

from hybridsim.models.catalogue.handbook import handbook_48
from hybridsim.models.catalogue.jamba import jamba_1_5_mini
from hybridsim.models.catalogue.kimi import kimi_linear_48b_a3b
from hybridsim.models.catalogue.llama import llama_3_1_8b
from hybridsim.models.catalogue.marconi import marconi_7b
from hybridsim.models.catalogue.minimax import minimax_text_01
from hybridsim.models.catalogue.nemotron import (
    nemotron_3_nano_30b_a3b,
    nemotron_h_8b,
    nemotron_nano_9b_v2,
)
from hybridsim.models.catalogue.qwen import (
    qwen3_5_0_8b,
    qwen3_5_4b,
    qwen3_5_9b,
    qwen3_5_27b,
    qwen3_5_35b_a3b,
    qwen3_5_122b_a10b,
    qwen3_5_397b_a17b,
    qwen3_next_80b_a3b,
)
from hybridsim.models.spec import ModelSpec

CATALOGUE: dict[str, Callable[[], ModelSpec]] = {
    "qwen3.5-0.8b": qwen3_5_0_8b,
    "qwen3.5-4b": qwen3_5_4b,
    "qwen3.5-9b": qwen3_5_9b,
    "qwen3.5-27b": qwen3_5_27b,
    "qwen3.5-35b-a3b": qwen3_5_35b_a3b,
    "qwen3.5-122b-a10b": qwen3_5_122b_a10b,
    "qwen3.5-397b-a17b": qwen3_5_397b_a17b,
    "qwen3-next-80b-a3b": qwen3_next_80b_a3b,
    "kimi-linear-48b-a3b": kimi_linear_48b_a3b,
    "nemotron-h-8b": nemotron_h_8b,
    "nemotron-nano-9b-v2": nemotron_nano_9b_v2,
    "nemotron-3-nano-30b-a3b": nemotron_3_nano_30b_a3b,
    "jamba-1.5-mini": jamba_1_5_mini,
    "minimax-text-01": minimax_text_01,
    "marconi-7b": marconi_7b,
    "handbook-48": handbook_48,
    "llama-3.1-8b": llama_3_1_8b,
}
