"""From a run's config to its objects: the one place that knows both. Objects never see a config."""

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from hybridsim.build.base import Built, Capacity, Engine, NoOptions, cache_keys, serve_all
from hybridsim.build.block_lru import build_block_lru
from hybridsim.build.marconi import MarconiOptions, build_marconi
from hybridsim.build.research import ResearchOptions, build_research
from hybridsim.build.sglang import RawOptions, build_sglang
from hybridsim.build.vllm import build_vllm
from hybridsim.config import CacheConfig, RunConfig, validate
from hybridsim.cost import get_cost_model, gpu_memory_bytes, price_files
from hybridsim.cost.base import CostModel
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec, get_model
from hybridsim.request import Trace
from hybridsim.sim.options import SchedulerOptions
from hybridsim.traces import open_trace, read_trace
from hybridsim.units import format_bytes

__all__ = [
    "ENGINES", "Built", "Capacity", "build_cache", "build_cost", "build_model", "build_scheduler",
    "check_run", "load_trace", "serve_all", "shipped_files",
]  # fmt: skip

_SGLANG_KEYS = frozenset({"memory", "state_fraction", "kv_tokens", "state_slots", "page_size"})
_VLLM_KEYS = frozenset({"memory", "num_blocks"})

# Adding an engine = a builder and a line.
ENGINES: Mapping[str, Engine] = {
    "research": Engine(ResearchOptions, cache_keys("num_blocks"), build_research),
    "block_lru": Engine(NoOptions, frozenset({"num_blocks", "memory"}), build_block_lru),
    "marconi": Engine(MarconiOptions, frozenset({"memory", "layout"}), build_marconi),
    "sglang-0.5.23": Engine(RawOptions, _SGLANG_KEYS, build_sglang),
    "vllm-0.33.0": Engine(RawOptions, _VLLM_KEYS, partial(build_vllm, "0.33.0")),
    "vllm-0.27.1": Engine(RawOptions, _VLLM_KEYS, partial(build_vllm, "0.27.1")),
}


def check_run(config: RunConfig) -> Built:
    """Build all but the trace; raises UserError naming the config key."""
    built = build_cache(config)
    if config.mode == "timed":
        if built.cache is None:
            raise UserError(
                "mode", f"'timed' is not available for engine {config.engine.name}; allowed: replay"
            )
        build_cost(config)
        _check_memory(config, built)
        build_scheduler(config)
    elif config.gpu is not None:
        build_cost(config)
    _check_trace(config)
    return built


def _check_memory(config: RunConfig, built: Built) -> None:
    """Weights and pools of a rank must fit its GPU. Activations are not counted."""
    gpu_bytes = gpu_memory_bytes(config.gpu)
    weight_bytes, cache_bytes = built.model.weight_bytes, built.capacity.total_bytes or 0
    if gpu_bytes is None or weight_bytes + cache_bytes <= gpu_bytes:
        return
    of_rank = f" of one rank of {config.tp}" if config.tp > 1 else ""
    rest_bytes = gpu_bytes - weight_bytes
    allowed = f"cache.memory up to {format_bytes(rest_bytes)}, " if rest_bytes > 0 else ""
    raise UserError(
        "cache.memory" if rest_bytes > 0 else "gpu",
        f"weights{of_rank} take {format_bytes(weight_bytes)} and the cache's pools "
        f"{format_bytes(cache_bytes)}, more than the GPU's {format_bytes(gpu_bytes)}; "
        f"allowed: {allowed}more ranks (tp), or gpu.memory for a larger GPU",
    )


def build_cache(config: RunConfig) -> Built:
    """A fresh cache of the named engine for one rank of the model."""
    name = config.engine.name
    if name not in ENGINES:
        raise unknown_name("engine", name, list(ENGINES))
    engine = ENGINES[name]
    options = validate(engine.options, config.engine.options, "engine")
    for key, field in CacheConfig.model_fields.items():
        if key not in engine.cache_keys and getattr(config.cache, key) != field.default:
            allowed = ", ".join(key for key in CacheConfig.model_fields if key in engine.cache_keys)
            raise UserError(
                f"cache.{key}",
                f"engine {name} has no use for it; allowed: {allowed} (null takes a key back, as "
                f"in --set cache.{key}=null)",
            )
    return engine.build(config.cache, build_model(config), options)


def build_model(config: RunConfig) -> ModelSpec:
    """One tensor-parallel rank of the model."""
    return get_model(config.model).for_rank(config.tp)


def build_cost(config: RunConfig) -> CostModel:
    """The price of steps on the configured GPU."""
    return get_cost_model(config.gpu, get_model(config.model), config.tp)


def shipped_files(config: RunConfig) -> tuple[Path, ...]:
    """Data files of hybridsim itself that decide the run's numbers: where its prices come from."""
    if config.mode != "timed":
        return ()
    return price_files(config.gpu, get_model(config.model), config.tp)


def build_scheduler(config: RunConfig) -> SchedulerOptions:
    return SchedulerOptions(**config.scheduler.model_dump())


# Parsing is the slow part of a sweep, so a process keeps each trace that it has read.
_TRACES: dict[str, Trace] = {}


def load_trace(config: RunConfig) -> Trace:
    """The configured trace, read once a process. Raises UserError naming file and line."""
    trace = config.trace
    stamp = os.stat(trace.path).st_mtime_ns if trace.path and os.path.exists(trace.path) else None
    key = json.dumps([trace.format, trace.path, stamp, trace.first, trace.options, config.seed])
    if key not in _TRACES:
        _TRACES[key] = read_trace(
            trace.path, trace.format, first=trace.first, options=trace.options, seed=config.seed
        )
    return _TRACES[key]


def _check_trace(config: RunConfig) -> None:
    """Format, options and path, without reading the file."""
    trace = config.trace
    open_trace(trace.path, trace.format, first=trace.first, options=trace.options, seed=config.seed)
