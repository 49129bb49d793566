"""From a run's config to its objects: the one place that knows both. Objects never see a config."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from hybridsim.cache.base import PrefixCache
from hybridsim.cache.block_cache import BlockLRU
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.config import UNLIMITED, CacheConfig, RunConfig, exact_size, validate
from hybridsim.config.schema import StrictBool
from hybridsim.cost import get_cost_model
from hybridsim.cost.base import CostModel
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec, get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.records import RequestRecord
from hybridsim.request import Request, Trace
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.replay import replay
from hybridsim.traces import open_trace, read_trace
from hybridsim.units import format_bytes


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a cache holds, in whatever it is counted; None where that is no limit of it."""

    total_bytes: int | None = None
    kv_tokens: int | None = None
    state_slots: int | None = None
    num_blocks: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_unlimited(self) -> bool:
        limits = (self.total_bytes, self.kv_tokens, self.state_slots, self.num_blocks)
        return all(limit is None for limit in limits)


OnProgress = Callable[[int, int], None]


class Replay(Protocol):
    """Serves requests one after another, checks the laws at the end, returns a row for each."""

    def __call__(
        self, requests: Sequence[Request], ideal_tokens: Sequence[int], progress: OnProgress
    ) -> list[RequestRecord]: ...


@dataclass(frozen=True, slots=True)
class Built:
    """A fresh cache under an engine's rules, and what a report must know of it.

    `cache` is what timed mode drives; None where the engine has no timed mode.
    `usage` gives further summary columns after a run, such as peaks in bytes.
    `keeps_outputs`, `caps_last_token`: what the infinite cache of the ceiling does too.
    """

    replay: Replay
    cache: PrefixCache | None
    usage: Callable[[], dict[str, float]]
    capacity: Capacity
    model: ModelSpec
    keeps_outputs: bool
    caps_last_token: bool
    notes: tuple[str, ...] = ()


class ResearchOptions(BaseModel):
    """Options of `engine: research`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    compute_last_token: StrictBool = True
    cache_outputs: StrictBool = True


class NoOptions(BaseModel):
    """An engine without options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Engine:
    """An entry of ENGINES. `cache_keys` are those keys of `cache` that mean something to it."""

    options: type[BaseModel]
    cache_keys: frozenset[str]
    build: Callable[[CacheConfig, ModelSpec, Any], Built]


def check_run(config: RunConfig) -> Built:
    """Build all but the trace; raises UserError naming the config key."""
    built = build_cache(config)
    if config.mode == "timed":
        if built.cache is None:
            raise UserError(
                "mode", f"'timed' is not available for engine {config.engine.name}; allowed: replay"
            )
        build_cost(config)
        build_scheduler(config)
    _check_trace(config)
    return built


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
            raise UserError(f"cache.{key}", f"engine {name} has no use for it; allowed: {allowed}")
    return engine.build(config.cache, build_model(config), options)


def build_model(config: RunConfig) -> ModelSpec:
    """One tensor-parallel rank of the model."""
    return get_model(config.model).for_rank(config.tp)


def build_cost(config: RunConfig) -> CostModel:
    """The price of steps on the configured GPU."""
    return get_cost_model(config.gpu, get_model(config.model), config.tp)


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


def num_warmup_requests(trace: Trace, warmup: float) -> int:
    """How many requests, from the first, are left out of the rates: floor(fraction x number)."""
    return int(len(trace.requests) * warmup)


def _check_trace(config: RunConfig) -> None:
    """Format, options and path, without reading the file."""
    trace = config.trace
    open_trace(trace.path, trace.format, first=trace.first, options=trace.options, seed=config.seed)


def _build_research(cache: CacheConfig, model: ModelSpec, options: ResearchOptions) -> Built:
    page_bytes = model.kv_bytes_per_token * cache.page_size
    checkpoint = make_checkpoint(_policy(cache.checkpoint))
    eviction = make_eviction(_policy(cache.eviction))
    memory, capacity = _research_memory(cache, model, page_bytes)
    radix = RadixCache(
        memory,
        cache.page_size,
        checkpoint,
        eviction,
        compute_last_token=options.compute_last_token,
        cache_outputs=options.cache_outputs,
    )

    def peaks() -> dict[str, float]:
        usage = radix.usage()
        return {
            "peak_kv_bytes": usage.peak_kv_bytes,
            "peak_state_bytes": usage.peak_state_bytes,
        }

    return Built(
        lambda requests, ideal, progress: replay(requests, radix, ideal, progress),
        radix,
        peaks,
        capacity,
        model,
        options.cache_outputs,
        options.compute_last_token,
    )


def _build_block_lru(cache: CacheConfig, model: ModelSpec, options: NoOptions) -> Built:
    if cache.memory not in (None, UNLIMITED):
        raise UserError(
            "cache.memory",
            f"{exact_size(cache.memory)} has no meaning for engine block_lru; "
            "allowed: num_blocks, or memory: unlimited",
        )
    num_blocks = cache.num_blocks
    if cache.memory is None:
        num_blocks = _needed(num_blocks, "cache.num_blocks", "an integer >= 1")
    blocks = BlockLRU(num_blocks)
    note = "block_lru: a block of the trace is one unit; the model's sizes and states play no part"
    return Built(
        lambda requests, _, progress: serve_all(blocks, requests, progress),
        None,
        lambda: {"peak_blocks": blocks.peak_blocks},
        Capacity(num_blocks=num_blocks),
        model,
        keeps_outputs=False,
        caps_last_token=False,
        notes=(note,),
    )


class Server(Protocol):
    """An engine that serves one request to its end at a time."""

    def serve(self, request: Request) -> RequestRecord: ...

    def check(self) -> None:
        """Raise AssertionError if a law is broken."""
        ...


def serve_all(
    server: Server, requests: Sequence[Request], progress: OnProgress
) -> list[RequestRecord]:
    """Replay for engines that are no PrefixCache."""
    records = []
    for index, request in enumerate(requests):
        records.append(server.serve(request))
        progress(index + 1, len(requests))
    server.check()
    return records


def _policy(named: Any) -> str | dict[str, Any]:
    return {"name": named.name, **named.options} if named.options else str(named.name)


def _research_memory(
    cache: CacheConfig, model: ModelSpec, page_bytes: int
) -> tuple[Memory, Capacity]:
    slot_bytes = model.state_bytes
    if cache.memory == UNLIMITED:
        return Memory(page_bytes, slot_bytes, None, None), Capacity()
    if cache.layout == "shared":
        total_bytes = _needed(cache.memory, "cache.memory", "a size")
        _refuse_too_small(
            page_bytes + slot_bytes, total_bytes, "cache.memory", "a page and a state"
        )
        return SharedMemory(page_bytes, slot_bytes, total_bytes), Capacity(total_bytes)
    capacity = _split(cache, model, page_bytes)
    assert capacity.kv_tokens is not None
    num_pages = capacity.kv_tokens // cache.page_size
    return Memory(page_bytes, slot_bytes, num_pages, capacity.state_slots), capacity


def _split(cache: CacheConfig, model: ModelSpec, page_bytes: int) -> Capacity:
    """KV pages and state slots of layout split, by counts or by a fraction of the memory."""
    if cache.memory is None:
        return _split_by_counts(cache, model)
    total_bytes = _needed(cache.memory, "cache.memory", "a size")
    if not model.state_bytes:
        note = "the model has no recurrent state: all memory holds KV"
        return Capacity(total_bytes, _whole_pages(cache, page_bytes, total_bytes), notes=(note,))
    fraction = _needed(
        cache.state_fraction, "cache.state_fraction", "a fraction > 0 and < 1 (or layout: shared)"
    )
    state_slots = int(total_bytes * fraction) // model.state_bytes
    if not state_slots:
        _refuse_too_small(
            model.state_bytes, int(total_bytes * fraction), "cache.state_fraction", "one state"
        )
    kv_bytes = total_bytes - int(total_bytes * fraction)
    return Capacity(total_bytes, _whole_pages(cache, page_bytes, kv_bytes), state_slots)


def _split_by_counts(cache: CacheConfig, model: ModelSpec) -> Capacity:
    allowed = "memory with state_fraction, or kv_tokens with state_slots"
    if cache.kv_tokens is None:
        place = "cache.memory" if cache.state_slots is None else "cache.kv_tokens"
        raise UserError(place, f"is missing; allowed: {allowed}")
    kv_tokens = cache.kv_tokens // cache.page_size * cache.page_size
    if not kv_tokens:
        raise UserError(
            "cache.kv_tokens",
            f"{cache.kv_tokens} is less than a page; allowed: at least {cache.page_size}",
        )
    slots = cache.state_slots
    if not model.state_bytes:
        note = ("the model has no recurrent state: state_slots is not used",) if slots else ()
        return Capacity(kv_tokens * model.kv_bytes_per_token, kv_tokens, notes=note)
    slots = _needed(slots, "cache.state_slots", "an integer >= 1")
    total_bytes = kv_tokens * model.kv_bytes_per_token + slots * model.state_bytes
    return Capacity(total_bytes, kv_tokens, slots)


def _whole_pages(cache: CacheConfig, page_bytes: int, kv_bytes: int) -> int:
    if not page_bytes:
        raise UserError("model", "has no attention layers; allowed: a model with KV to cache")
    _refuse_too_small(page_bytes, kv_bytes, "cache.memory", "one page of KV")
    return kv_bytes // page_bytes * cache.page_size


def _needed(value: Any, place: str, allowed: str) -> Any:
    if value is None:
        raise UserError(place, f"is missing; allowed: {allowed}")
    return value


def _refuse_too_small(needed_bytes: int, given_bytes: int, place: str, what: str) -> None:
    if given_bytes < needed_bytes:
        raise UserError(
            place,
            f"gives {format_bytes(given_bytes)}, too little for {what}; "
            f"allowed: at least {format_bytes(needed_bytes)} of it",
        )


def _keys(*left_out: str) -> frozenset[str]:
    return frozenset(CacheConfig.model_fields) - frozenset(left_out)


# Adding an engine = a builder and a line.
ENGINES: Mapping[str, Engine] = {
    "research": Engine(ResearchOptions, _keys("num_blocks"), _build_research),
    "block_lru": Engine(NoOptions, frozenset({"num_blocks", "memory"}), _build_block_lru),
}
