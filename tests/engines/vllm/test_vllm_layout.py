"""Block sizes, groups and capacity of real models (spec of vLLM 0.33.0, section 1)."""

from typing import Any

import pytest
from vllm_workloads import engine, hits, repeated

from hybridsim.engines.vllm import (
    Geometry,
    VLLMOptions,
    build_layout,
    check_startup,
    geometry_of,
)  # fmt: skip
from hybridsim.engines.vllm.layout import group_layers
from hybridsim.engines.vllm.show import describe, shortest_hit
from hybridsim.errors import UserError
from hybridsim.models import get_model

BF16_STATE = {"ssm_dtype": "bf16"}
# model: (KV bytes per token and layer, state bytes, block, 64-aligned, with 3 drafts, fp8 KV)
TABLE: dict[str, tuple[int, ...]] = {
    "qwen3.5-0.8b": (2048, 1_085_440, 544, 576, 560, 1072),
    "qwen3.5-4b": (4096, 2_146_304, 528, 576, 544, 1056),
    "qwen3.5-9b": (4096, 2_146_304, 528, 576, 544, 1056),
    "qwen3.5-27b": (4096, 3_207_168, 784, 832, 800, 1568),
    "qwen3.5-35b-a3b": (2048, 2_146_304, 1056, 1088, 1072, 2096),
    "qwen3-next-80b-a3b": (2048, 1_097_728, 544, 576, 560, 1072),
    "kimi-linear-48b-a3b": (1152, 2_170_880, 1920, 1920, 2048, 3840),
    "nemotron-h-8b": (4096, 4_255_744, 1040, 1088, 1056, 2080),
    "nemotron-nano-9b-v2": (4096, 5_316_608, 1312, 1344, 1328, 2608),
    "nemotron-3-nano-30b-a3b": (1024, 2_134_016, 2096, 2112, 2128, 4176),
    "jamba-1.5-mini": (4096, 311_296, 80, 128, 80, 160),
    "minimax-text-01": (4096, 2_097_152, 512, 512, 512, 1024),
}
VARIANTS: list[dict[str, Any]] = [
    {}, {"internal_checkpoint": 64}, {"spec_k": 3}, {"kv_dtype": "fp8"}
]  # fmt: skip


def layout_of(model: str, **options: Any) -> Any:
    chosen = VLLMOptions(**options)
    return build_layout(geometry_of(get_model(model), chosen), chosen)


@pytest.mark.parametrize("model", TABLE)
def test_block_sizes_of_the_table(model: str) -> None:
    dtypes = BF16_STATE if model == "qwen3-next-80b-a3b" else {}
    layouts = [layout_of(model, **variant, **dtypes) for variant in VARIANTS]
    sizes = (layout.block_size for layout in layouts)
    assert (layouts[0].kv_bytes_per_token, layouts[0].state_bytes, *sizes) == TABLE[model]


@pytest.mark.parametrize(("drafts", "block"), [(3, 1600), (4, 1616), (7, 1648)])
def test_drafts_make_the_block_larger(drafts: int, block: int) -> None:
    assert layout_of("qwen3.5-27b", kv_dtype="fp8", spec_k=drafts).block_size == block


def test_two_gib_of_the_small_model_are_321_blocks() -> None:
    layout = layout_of("qwen3.5-0.8b")
    assert layout.bytes_per_block == 6_684_672
    assert layout.num_blocks(2 * 2**30) == 321
    assert layout.padding_pct == 2.64
    assert engine(memory=2 * 2**30).num_blocks == 321


@pytest.mark.parametrize(
    ("attention", "recurrent", "size", "groups"),
    [
        (6, 18, 6, ([6], [6, 6, 6])),
        (7, 18, 7, ([7], [6, 6, 6])),  # a draft layer: three padded places
        (4, 28, 4, ([4], [4] * 7)),
        (10, 70, 10, ([10], [10] * 7)),
        (7, 20, 7, ([7], [7, 7, 6])),
        (6, 23, 6, ([6], [6, 6, 6, 5])),
        (4, 5, 5, ([4], [5])),  # 5 < 1.5 * 4: the larger kind sets the size
        (6, 4, 4, ([3, 3], [4])),  # 6 is not below 1.5 * 4
        (32, 0, 32, ([32], [])),
    ],
)
def test_layers_become_groups(
    attention: int, recurrent: int, size: int, groups: tuple[list[int], list[int]]
) -> None:
    assert group_layers(attention, recurrent) == (size, *groups)


def test_a_draft_layer_pads_three_places() -> None:
    assert layout_of("qwen3.5-0.8b").num_padded_layers == 0
    assert layout_of("qwen3.5-0.8b", spec_k=3).num_padded_layers == 3


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        # ceil(32768 / 544) = 61 attention blocks and 3 groups of states
        ({}, 61 + 3 * 2),
        ({"mamba_mode": "none"}, 61 + 3 * 1),
        ({"version": "0.27.1", "mamba_mode": "all"}, 61 + 3 * 61),
        # with drafts the block has 560 tokens, 64-aligned it has 576
        ({"spec_k": 3}, 59 + 3 * 5),
        ({"internal_checkpoint": 64}, 57 + 3 * 3),
    ],
)
def test_startup_needs_room_for_one_longest_request(options: dict[str, Any], needed: int) -> None:
    chosen = VLLMOptions(**options)
    layout = layout_of("qwen3.5-0.8b", **options)
    assert layout.max_blocks_per_request == needed
    check_startup(layout, chosen, needed, "cache.num_blocks")
    with pytest.raises(UserError, match=f"needs {needed}"):
        check_startup(layout, chosen, needed - 1, "cache.num_blocks")


def test_description_answers_what_a_user_asks_before_start() -> None:
    options = VLLMOptions()
    lines = dict(describe(layout_of("qwen3.5-0.8b"), options, num_blocks=321))
    # usable 320 blocks, longest request 61 + 3 * 2 = 67: 321 / 67 = 4.79
    assert lines["block size"].startswith("544 tokens")
    assert lines["shortest reusable prefix"].startswith("544 tokens (prompts from 545")
    assert lines["concurrency at max_model_len"].startswith("4.79")
    assert lines["KV tokens of one request alone"].startswith(str(min(32768, (320 - 6) * 544)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prefix_match_unit": 32},
        {"spec_k": 3},
        {"spec_k": 3, "hash_lookahead": 2},
        {"spec_k": 3, "eagle_drop": True},
        {"spec_k": 3, "eagle_drop": True, "prefix_match_unit": 56},
        {"version": "0.27.1"},
        {"version": "0.27.1", "spec_k": 3},
        {"version": "0.27.1", "mamba_mode": "all"},
    ],
)
def test_the_shortest_prompt_that_can_hit_hits_and_a_shorter_one_never(
    options: dict[str, Any],
) -> None:
    grid, least = shortest_hit(engine(**options).layout, VLLMOptions(**options))
    assert hits(engine(**options), repeated(least))[-1] == grid
    assert hits(engine(**options), repeated(least - 1)) == [0, 0, 0]


def test_a_model_without_full_attention_is_refused() -> None:
    with pytest.raises(UserError, match="full-attention"):
        build_layout(Geometry(0, 4, 2048, 10_000), VLLMOptions())


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"version": "0.30.0"}, "engine.version"),
        ({"mamba_mode": "all"}, "engine.mamba_mode"),
        ({"mamba_mode": "dense"}, "engine.mamba_mode"),
        ({"sched_policy": "sjf"}, "engine.sched_policy"),
        ({"kv_dtype": "fp4"}, "engine.kv_dtype"),
        ({"block_size": 0}, "engine.block_size"),
        ({"max_model_len": -1}, "engine.max_model_len"),
        ({"spec_k": -1}, "engine.spec_k"),
        ({"spec_k": True}, "engine.spec_k"),
        ({"retention": "dense"}, "engine.retention"),
        ({"num_blocks": 1}, "engine.num_blocks"),
        ({"watermark": 1.5}, "engine.watermark"),
        ({"max_num_batched_tokens": 64}, "engine.max_num_batched_tokens"),
        ({"version": "0.27.1", "hash_lookahead": 1}, "engine.hash_lookahead"),
        ({"version": "0.27.1", "internal_checkpoint": 64}, "engine.internal_checkpoint"),
        ({"version": "0.27.1", "spec_k": 1, "eagle_drop": False}, "engine.eagle_drop"),
        ({"spec_k": 1, "eagle_drop": True, "hash_lookahead": 1}, "engine.eagle_drop"),
    ],
)
def test_impossible_options_name_their_key(options: dict[str, Any], place: str) -> None:
    with pytest.raises(UserError) as caught:
        VLLMOptions(**options)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"retention": 545}, "engine.retention"),
        ({"prefix_match_unit": 33}, "engine.prefix_match_unit"),
    ],
)
def test_options_that_do_not_fit_the_block_are_refused(options: dict[str, Any], place: str) -> None:
    with pytest.raises(UserError) as caught:
        layout_of("qwen3.5-0.8b", **options)
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("options", "drops", "lookahead", "retention"),
    [
        ({}, False, 0, 0),
        ({"spec_k": 2}, False, 1, 0),
        ({"spec_k": 2, "eagle_drop": True}, True, 0, 0),
        ({"spec_k": 2, "eagle_drop": False}, False, 0, 0),
        ({"version": "0.27.1", "spec_k": 2}, True, 0, None),
    ],
)
def test_defaults_are_those_of_the_release(
    options: dict[str, Any], drops: bool, lookahead: int, retention: int | None
) -> None:
    chosen = VLLMOptions(**options)
    assert chosen.drops == drops
    assert chosen.lookahead_tokens == lookahead
    assert chosen.retention_interval == retention
