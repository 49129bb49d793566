"""Random server configurations: every strategy, policy, grid and page size, all pool sizes."""

from typing import Any

import numpy as np

from conformance.generate import TraceShape
from hybridsim.engines.sglang.options import EVICTION_POLICIES, SGLangOptions, options_from

Config = dict[str, Any]
STRATEGIES = ("no_buffer", "extra_buffer", "extra_buffer_lazy")
SLOTS_PER_REQUEST = {"no_buffer": 3, "extra_buffer": 5, "extra_buffer_lazy": 4}


def random_config(rng: np.random.Generator, window_share: float = 0.25) -> Config:
    """Behaviour without pool sizes. window_share: of models with sliding-window layers."""
    strategy = str(rng.choice(STRATEGIES, p=(0.25, 0.45, 0.3)))
    page = 1 if strategy == "no_buffer" else int(rng.choice((1, 1, 2, 4, 16, 64)))
    chunk = int(rng.choice((4, 8, 12, 16, 64)))
    config: Config = {
        "strategy": strategy,
        "page_size": page,
        "chunk_size": chunk,
        "track_interval": page * int(rng.choice((1, 2, 3, 4, 8))) * (1 if page > 8 else 4),
        "chunked_prefill_size": int(rng.choice((-1, 8192, 16, 40, 50, 64, 100, 128))),
        "overlap": bool(strategy == "extra_buffer_lazy" or rng.random() < 0.7),
        "eviction_policy": "lru" if rng.random() < 0.4 else str(rng.choice(EVICTION_POLICIES)),
        "max_states_per_path": int(rng.choice((-1, -1, -1, 1, 2, 3))),
        "skip_decode_lock": bool(rng.random() < 0.15),
    }
    if rng.random() < 0.15:
        config["int8_ckpt"] = True
        size = int(rng.choice((0, 1, 2, 4, 10, 20)))
        config["int8_ckpt_size"] = size or None
    if config["eviction_policy"] == "tlru":
        config["tlru_threshold"] = int(rng.choice((0, 20, 60)))
        config["tlru_next_prompt_estimate"] = int(rng.choice((0, 10, 100)))
    if rng.random() < window_share:
        config["sliding_window"] = int(rng.choice((1, 8, 24, 64, 100)))
        config["swa_tokens"] = 10**6
    if config["chunked_prefill_size"] > 0:
        config["chunked_prefill_size"] = max(config["chunked_prefill_size"], page)
    return config


def shape_for(config: Config, rng: np.random.Generator, num_requests: int) -> TraceShape:
    """A trace in which the config's grids matter."""
    options = options_from(config)
    chunk = config["chunked_prefill_size"]
    grids = (options.grid_tokens, options.decode_grid_tokens, options.page_size)
    longest = int(rng.choice((120, 300, 500))) + 2 * options.grid_tokens
    return TraceShape(
        grids=tuple(sorted({*grids, chunk if 0 < chunk < longest else options.grid_tokens})),
        num_requests=num_requests,
        max_prompt_tokens=longest,
        max_output_tokens=int(rng.choice((20, 60, _long_output(options)))),
        num_priorities=4 if config["eviction_policy"] == "priority" else 1,
    )


def _long_output(options: SGLangOptions) -> int:
    """Long enough for two decode checkpoints, and for a window to slide."""
    long = 2 * options.decode_grid_tokens + 5
    if options.sliding_window is not None:
        long = max(long, options.sliding_window + 300)
    return min(450, long)


def with_pools(config: Config, trace: list[dict[str, Any]], rng: np.random.Generator) -> Config:
    """Pool sizes from ample to so tight that requests are refused or the engine dies."""
    page = config["page_size"]
    lengths = [len(row["tokens"]) + len(row["output"]) + 2 * page for row in trace]
    kv = int(max(lengths) * rng.choice((0.7, 1.0, 1.2, 1.5, 2.5, 4.0))) + page
    if rng.random() < 0.35:
        kv = sum(lengths) + 64 * page
    least = SLOTS_PER_REQUEST[config["strategy"]]
    slots = least + int(rng.choice((0, 1, 3, 8, 20)))
    if rng.random() < 0.3:
        slots = 20 * len(trace)
    if rng.random() < 0.08:
        slots = max(1, least - int(rng.integers(1, 5)))
    if "sliding_window" in config:
        chunk = config["chunked_prefill_size"]
        first = min(max(lengths), chunk) if chunk > 0 else max(lengths)
        least = first + config["sliding_window"] + 2 * page
        config["swa_tokens"] = int(least * rng.choice((1.0, 1.2, 2.0, 4.0))) + 2 * page
        if rng.random() < 0.2:
            config["swa_tokens"] = kv
    return {**config, "kv_tokens": kv, "state_slots": slots, "max_context": max(lengths) + 8}
