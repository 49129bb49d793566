"""The SGLang engine, from values of a config."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from hybridsim.build.base import Built, Capacity, Limits, needed, serve_all
from hybridsim.config import UNLIMITED, CacheConfig, validate
from hybridsim.engines.sglang.engine import SGLangEngine
from hybridsim.engines.sglang.options import SGLangOptions, options_from
from hybridsim.engines.sglang.sizing import SizingInputs, size_pools
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec

_OF_CACHE = ("kv_tokens", "state_slots", "page_size")
_OPTIONS = [field.name for field in fields(SGLangOptions)]
# The sizing names its inputs; a user knows them by the keys that they come from.
_KEY_OF_SIZING = {
    "sizing.memory_bytes": "cache.memory",
    "sizing.ratio": "engine.mamba_full_memory_ratio",
    "sizing.max_states": "engine.max_mamba_cache_size",
    "sizing.max_running": "engine.max_running_requests",
}


class RawOptions(BaseModel):
    """Options that the engine's own dataclass checks."""

    model_config = ConfigDict(extra="allow", frozen=True)


def _flag(allowed: str, **limits: Any) -> Any:
    return Field(None, json_schema_extra={"allowed": allowed}, **limits)


class SizingFlags(BaseModel):
    """Flags of the server that decide the split of a memory; no options of the cache itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    mamba_full_memory_ratio: float | None = _flag("a number > 0", gt=0, strict=True)
    max_mamba_cache_size: int | None = _flag("an integer >= 1", ge=1, strict=True)
    max_running_requests: int | None = _flag("an integer >= 1", ge=1, strict=True)
    num_draft_tokens: int | None = _flag("an integer >= 0", ge=0, strict=True)
    context_tokens: int | None = _flag("an integer >= 1", ge=1, strict=True)
    replay_draft: bool | None = _flag("true, false", strict=True)

    def inputs(self, model: ModelSpec, memory_bytes: int) -> SizingInputs:
        """With the engine's defaults where a flag is not given."""
        named = {
            "ratio": self.mamba_full_memory_ratio,
            "max_states": self.max_mamba_cache_size,
            "max_running": self.max_running_requests,
            "num_draft_tokens": self.num_draft_tokens,
            "context_tokens": self.context_tokens,
            "replay_draft": self.replay_draft,
        }
        given: dict[str, Any] = {k: v for k, v in named.items() if v is not None}
        return SizingInputs(memory_bytes, model.kv_bytes_per_token, model.state_bytes, **given)


def build_sglang(cache: CacheConfig, model: ModelSpec, raw: RawOptions) -> Built:
    """A server with pools of the given counts, or split from a memory as SGLang splits it."""
    if not model.state_bytes or not model.kv_bytes_per_token:
        raise UserError("model", f"{model.name} is no hybrid; this engine models hybrids only")
    options, capacity = _sized(cache, model, dict(raw.model_extra or {}))
    engine = SGLangEngine(options)
    return Built(
        lambda requests, _, progress: serve_all(engine, requests, progress),
        None,
        lambda: _peaks(engine, model),
        capacity,
        model,
        keeps_outputs=True,  # the ideal does, whatever the engine does
        caps_last_token=True,
        limits=_limits(options, model),
        notes=("SGLang 0.5.23: one request at a time through the engine's own decisions",),
        outcome=lambda: [f"the engine would die: {engine.death}"] if engine.death else [],
    )


def _limits(options: SGLangOptions, model: ModelSpec) -> Limits:
    """Pools are bounded each by itself, so a token and a state count as one, whatever their size.

    Checkpoints in int8 have slots of their own, which requests cannot run in. A window's pool
    bounds hits as the states' does; a plan keeps all tokens in both pools, or else a whole window
    for each state and each running request (in chunks of a page).
    """
    kv_bytes = model.kv_bytes_per_token
    window = None
    if options.sliding_window is not None and options.swa_tokens is not None:
        window = (options.sliding_window, options.swa_tokens)
    notes = {
        "bound: checkpoints have the int8 slots to themselves": options.int8_ckpt,
        "bound: the lower of two, one for states and one for windows of KV": window is not None,
    }
    return Limits(
        kv_bytes,
        model.state_bytes,
        options.kv_tokens * kv_bytes,
        options.num_checkpoint_slots * model.state_bytes,
        options.page_size,
        states_apart=options.int8_ckpt,
        window=window,
        plan_pools=_plan_pools(options, model) if window else (),
        note="; ".join(note for note, applies in notes.items() if applies),
    )


def _plan_pools(options: SGLangOptions, model: ModelSpec) -> tuple[tuple[float, float], ...]:
    """Every token in both pools; or as many states as the window's pool has windows."""
    assert options.sliding_window is not None
    assert options.swa_tokens is not None
    slots = options.num_checkpoint_slots
    windows = options.swa_tokens // (options.sliding_window + options.page_size)
    windows -= int(options.int8_ckpt)  # that of a running request, whose state is elsewhere
    kv_tokens = min(options.kv_tokens, options.swa_tokens)
    pools = ((kv_tokens, slots), (options.kv_tokens, min(slots, windows)))
    return tuple(
        (float(tokens * model.kv_bytes_per_token), float(states * model.state_bytes))
        for tokens, states in pools
    )


def _peaks(engine: SGLangEngine, model: ModelSpec) -> dict[str, float]:
    pools = engine.server.pools
    kv_tokens = pools.kv_pages.peak_used * pools.page_size
    return {
        "peak_kv_bytes": kv_tokens * model.kv_bytes_per_token,
        "peak_state_bytes": pools.slots.peak_used * model.state_bytes,
    }


def sized_options(
    model: ModelSpec, memory_bytes: int, given: Mapping[str, Any], page_size: int = 1
) -> tuple[SGLangOptions, SizingInputs]:
    """Options whose pools are split from a memory; `given` may hold sizing flags too."""
    flags, options = _parted(given)
    first = options_from({**options, "page_size": page_size})
    try:
        inputs = validate(SizingFlags, flags, "engine").inputs(model, memory_bytes)
        sizing = size_pools(first, inputs)
    except UserError as error:
        raise UserError(_KEY_OF_SIZING.get(error.place, error.place), error.message) from None
    sized = {"kv_tokens": sizing.kv_tokens, "state_slots": sizing.state_slots}
    return options_from({**options, **sized, "page_size": page_size}), inputs


def _parted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sizing flags, and options of the cache."""
    known = [*(set(_OPTIONS) - set(_OF_CACHE)), *SizingFlags.model_fields]
    for key in given:
        if key in _OF_CACHE:
            raise UserError(f"engine.{key}", f"belongs under cache; write cache.{key}")
        if key not in known:
            raise unknown_name(f"engine.{key}", key, sorted(known))
    flags = {key: value for key, value in given.items() if key in SizingFlags.model_fields}
    return flags, {key: value for key, value in given.items() if key not in flags}


def _sized(
    cache: CacheConfig, model: ModelSpec, given: dict[str, Any]
) -> tuple[SGLangOptions, Capacity]:
    page_size = cache.page_size if "page_size" in cache.model_fields_set else 1
    if cache.memory == UNLIMITED:
        raise UserError("cache.memory", "unlimited; allowed: a size, which this engine splits")
    if isinstance(cache.memory, int):
        options, _ = sized_options(model, cache.memory, _with_fraction(cache, given), page_size)
        return options, Capacity(cache.memory, options.kv_tokens, options.state_slots)
    flags, rest = _parted(given)
    for key in flags:
        raise UserError(f"engine.{key}", "decides a split of cache.memory, which is not given")
    counts = {
        key: needed(getattr(cache, key), f"cache.{key}", "an integer >= 1, or cache.memory")
        for key in ("kv_tokens", "state_slots")
    }
    options = options_from({**rest, **counts, "page_size": page_size})
    kv_bytes = options.kv_tokens * model.kv_bytes_per_token
    total_bytes = kv_bytes + options.state_slots * model.state_bytes
    return options, Capacity(total_bytes, options.kv_tokens, options.state_slots)


def _with_fraction(cache: CacheConfig, given: dict[str, Any]) -> dict[str, Any]:
    """`state_fraction` f is SGLang's ratio f / (1 - f)."""
    if cache.state_fraction is None:
        return given
    if "mamba_full_memory_ratio" in given:
        raise UserError(
            "cache.state_fraction", "cannot stand beside engine.mamba_full_memory_ratio"
        )
    return {**given, "mamba_full_memory_ratio": cache.state_fraction / (1 - cache.state_fraction)}
