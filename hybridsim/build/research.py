"""The research cache and its memory, from values of a config."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from hybridsim.build.base import Built, Capacity, Limits, needed, refuse_too_small
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.config import UNLIMITED, CacheConfig
from hybridsim.config.values import StrictBool
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec
from hybridsim.policies import make_checkpoint, make_eviction, make_thinning
from hybridsim.request import Request
from hybridsim.sim.replay import replay
from hybridsim.sim.setting import setting_for


class ResearchOptions(BaseModel):
    """Options of `engine: research`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    compute_last_token: StrictBool = True
    cache_outputs: StrictBool = True


def build_research(cache: CacheConfig, model: ModelSpec, options: ResearchOptions) -> Built:
    page_bytes = model.kv_bytes_per_token * cache.page_size
    checkpoint = make_checkpoint(cache.checkpoint.plain)
    eviction = make_eviction(cache.eviction.plain)
    thinning = make_thinning(cache.thinning.plain) if cache.thinning else None
    memory, capacity = _research_memory(cache, model, page_bytes)
    radix = RadixCache(
        memory,
        cache.page_size,
        checkpoint,
        eviction,
        compute_last_token=options.compute_last_token,
        cache_outputs=options.cache_outputs,
        thinning=thinning,
    )

    def prepare(requests: Sequence[Request], seed: int) -> None:
        radix.prepare(setting_for(requests, model, seed, shared=cache.layout == "shared"))

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
        prepare=prepare,
        limits=_limits(cache, model, capacity),
    )


def _limits(cache: CacheConfig, model: ModelSpec, capacity: Capacity) -> Limits | None:
    if capacity.is_unlimited:
        return None
    kv, state = model.kv_bytes_per_token, model.state_bytes
    if cache.layout == "shared":
        assert capacity.total_bytes is not None
        return Limits(kv, state, capacity.total_bytes, page_tokens=cache.page_size)
    assert capacity.kv_tokens is not None
    slots = capacity.state_slots
    state_capacity = None if slots is None else slots * state
    return Limits(kv, state, capacity.kv_tokens * kv, state_capacity, cache.page_size)


def _research_memory(
    cache: CacheConfig, model: ModelSpec, page_bytes: int
) -> tuple[Memory, Capacity]:
    slot_bytes = model.state_bytes
    if cache.memory == UNLIMITED:
        return Memory(page_bytes, slot_bytes, None, None), Capacity()
    if cache.layout == "shared":
        total_bytes = needed(cache.memory, "cache.memory", "a size")
        refuse_too_small(page_bytes + slot_bytes, total_bytes, "cache.memory", "a page and a state")
        return SharedMemory(page_bytes, slot_bytes, total_bytes), Capacity(total_bytes)
    capacity = _split(cache, model, page_bytes)
    assert capacity.kv_tokens is not None
    num_pages = capacity.kv_tokens // cache.page_size
    return Memory(page_bytes, slot_bytes, num_pages, capacity.state_slots), capacity


def _split(cache: CacheConfig, model: ModelSpec, page_bytes: int) -> Capacity:
    """KV pages and state slots of layout split, by counts or by a fraction of the memory."""
    if cache.memory is None:
        return _split_by_counts(cache, model)
    total_bytes = needed(cache.memory, "cache.memory", "a size")
    if not model.state_bytes:
        note = "the model has no recurrent state: all memory holds KV"
        return Capacity(total_bytes, _whole_pages(cache, page_bytes, total_bytes), notes=(note,))
    fraction = needed(
        cache.state_fraction, "cache.state_fraction", "a fraction > 0 and < 1 (or layout: shared)"
    )
    state_slots = int(total_bytes * fraction) // model.state_bytes
    if not state_slots:
        refuse_too_small(
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
    slots = needed(slots, "cache.state_slots", "an integer >= 1")
    total_bytes = kv_tokens * model.kv_bytes_per_token + slots * model.state_bytes
    return Capacity(total_bytes, kv_tokens, slots)


def _whole_pages(cache: CacheConfig, page_bytes: int, kv_bytes: int) -> int:
    if not page_bytes:
        raise UserError("model", "has no attention layers; allowed: a model with KV to cache")
    refuse_too_small(page_bytes, kv_bytes, "cache.memory", "one page of KV")
    return kv_bytes // page_bytes * cache.page_size
