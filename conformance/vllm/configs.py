"""Random engine configurations with small blocks, so that short prompts reach every rule."""

from typing import Any

import numpy as np

Row = dict[str, Any]
Rng = np.random.Generator

_SHAPES = ((2, 6), (3, 9), (2, 3), (1, 4), (4, 6), (6, 18), (3, 4), (5, 3))


def _choice(rng: Rng, values: tuple[Any, ...]) -> Any:
    return values[int(rng.integers(len(values)))]


def _model(rng: Rng) -> Row:
    attention, recurrent = _choice(rng, _SHAPES)
    state = [[[4, 8], "bf16"], [[2, 4, 4], "fp32"]]
    return {"attn": attention, "lin": recurrent, "kvh": 1, "hd": 8, "state": state}


def random_config(rng: Rng, version: str) -> Row:
    """A configuration for the oracle's driver; about half have a pool that evicts."""
    modes = ("align",) * 8 + ("none",) + (("all",) * 4 if version == "0.27.1" else ())
    block = _choice(rng, (16, 32, 48, 64))
    config: Row = {
        "model": _model(rng),
        "mamba_mode": _choice(rng, modes),
        "block_size": block,
        "max_model_len": int(rng.integers(500, 900)),
        "max_num_batched_tokens": _budget(rng, block),
        "retention": _choice(rng, (0, 0, 0, None, block, 2 * block, 5 * block)),
    }
    if config["mamba_mode"] == "none":
        config["retention"] = 0
    if rng.random() < 0.4:
        config["prefix_match_unit"] = _choice(rng, (block // 2, block // 4, 8, block))
    if rng.random() < 0.3:
        _add_drafts(rng, config, version)
    if version == "0.33.0" and config["mamba_mode"] == "align" and rng.random() < 0.3:
        config["internal_checkpoint"] = _choice(rng, (1, 8, 16, block))
    if rng.random() < 0.15:
        config["reserve_full_isl"] = False
    if rng.random() < 0.1:
        config["watermark"] = float(_choice(rng, (0.02, 0.1)))
    if rng.random() < 0.1:
        config["long_prefill_token_threshold"] = int(rng.integers(block // 2, 4 * block))
    config["max_num_seqs"] = min(int(_choice(rng, (2, 4, 16))), config["max_num_batched_tokens"])
    if rng.random() < 0.4:
        config["mode"] = "concurrent"
        if rng.random() < 0.2:
            config["sched_policy"] = "priority"
    config["num_blocks"] = _num_blocks(rng, config)
    return config


def _budget(rng: Rng, block: int) -> int:
    low, high = _choice(rng, ((block // 2, block), (block, 3 * block), (100, 400), (900, 2000)))
    return int(rng.integers(low, high + 1))


def _add_drafts(rng: Rng, config: Row, version: str) -> None:
    config["spec_k"] = int(rng.integers(1, 5))
    config["spec_accept"] = int(rng.integers(0, config["spec_k"] + 1))
    if rng.random() < 0.2:
        config["eagle_group"] = False
    if version == "0.33.0":
        kind = rng.random()
        if kind < 0.5:
            config["hash_lookahead"] = int(_choice(rng, (1, 1, 1, 2, 3)))
        elif kind < 0.6:
            config["eagle_drop"] = False
        if rng.random() < 0.3:
            config["shared_prefix_checkpoint"] = True
        if rng.random() < 0.1:
            config["prefill_lookahead"] = int(rng.integers(1, config["spec_k"] + 1))


def _num_blocks(rng: Rng, config: Row) -> int:
    """From just enough for one long request to far more than a trace uses."""
    attention, recurrent = config["model"]["attn"], config["model"]["lin"]
    groups = max(1, recurrent // max(1, min(attention, recurrent)))
    one = -(-config["max_model_len"] // config["block_size"])
    per_group = one if config["mamba_mode"] == "all" else 3 + config.get("spec_k", 0)
    least = one + groups * per_group
    factor = _choice(rng, (0.8, 1.0, 1.2, 1.6, 2.5, 20.0))
    return int(least * factor) + 2
