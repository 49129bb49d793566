"""The vLLM engines, from values of a config."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from hybridsim.build.base import Built, Capacity, Limits, serve_all
from hybridsim.build.sglang import RawOptions
from hybridsim.config import UNLIMITED, CacheConfig
from hybridsim.engines.vllm.engine import VLLMEngine
from hybridsim.engines.vllm.geometry import geometry_of
from hybridsim.engines.vllm.layout import Layout, build_layout, check_startup
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec
from hybridsim.request import Request

_KEYS = [field.name for field in fields(VLLMOptions) if field.name not in ("version", "num_blocks")]

_MOST_BLOCKS = 10_000_000  # the pool has an object for each; no machine of today has as many

# vLLM's dtype for states is the model's own (bf16) unless the model's class says otherwise; most
# do, and the catalogue's rows follow them. This one does not.
_STATES_IN_MODEL_DTYPE = "qwen3-next"


def options_of(version: str, given: Mapping[str, Any]) -> VLLMOptions:
    """Options of a release; an unknown key is a UserError that lists the known ones."""
    for key in given:
        if key == "num_blocks":
            raise UserError("engine.num_blocks", "belongs under cache; write cache.num_blocks")
        if key not in _KEYS:
            raise unknown_name(f"engine.{key}", key, _KEYS)
    return VLLMOptions(version=version, **given)  # type: ignore[arg-type]


def layout_of(model: ModelSpec, options: VLLMOptions) -> Layout:
    """The memory plan for one rank of the model, with the dtypes that vLLM would choose."""
    if options.ssm_dtype is None and model.name.startswith(_STATES_IN_MODEL_DTYPE):
        options = replace(options, ssm_dtype="bf16")
    return build_layout(geometry_of(model, options), options)


def build_vllm(version: str, cache: CacheConfig, model: ModelSpec, raw: RawOptions) -> Built:
    """An engine with a pool of `cache.num_blocks` blocks, or as many as fit into `cache.memory`."""
    given = dict(raw.model_extra or {})
    options = options_of(version, given)
    layout = layout_of(model, options)
    num_blocks = _num_blocks(cache, layout)
    check_start(given, options, layout, num_blocks, _place_of(cache))
    server = _Server(model, options, num_blocks, takes_any_length="max_model_len" not in given)
    capacity = Capacity(num_blocks * layout.bytes_per_block, num_blocks=num_blocks)
    return Built(
        lambda requests, _, progress: serve_all(server.engine, requests, progress),
        None,
        lambda: {"peak_blocks": num_blocks - 1 - server.engine.scheduler.cache.pool.least_free},
        capacity,
        model,
        keeps_outputs=True,  # the ideal does, whatever the engine does
        caps_last_token=True,
        limits=_limits(model, layout, num_blocks, options if "max_model_len" in given else None),
        notes=(f"vLLM {version}: one request at a time through the engine's own decisions",),
        outcome=lambda: _outcome(server.engine),
        prepare=server.prepare,
    )


class _Server:
    """The engine of a run. It knows the trace only if it may be as long as the trace asks."""

    def __init__(
        self, model: ModelSpec, options: VLLMOptions, num_blocks: int, *, takes_any_length: bool
    ) -> None:
        self._model, self._options, self._num_blocks = model, options, num_blocks
        self._takes_any_length = takes_any_length
        self.engine = self._engine(options)

    def _engine(self, options: VLLMOptions) -> VLLMEngine:
        return VLLMEngine(options, layout_of(self._model, options), self._num_blocks)

    def prepare(self, requests: Sequence[Request], seed: int) -> None:
        """Without a `max_model_len` of the user's own, make it long enough for every request."""
        longest = max(r.num_prompt_tokens + max(r.num_output_tokens, 1) for r in requests) + 1
        if self._takes_any_length and longest > self._options.max_model_len:
            self.engine = self._engine(replace(self._options, max_model_len=longest))


def _place_of(cache: CacheConfig) -> str:
    """The key that says how many blocks there are."""
    return "cache.memory" if cache.num_blocks is None else "cache.num_blocks"


def check_start(
    given: Mapping[str, Any], options: VLLMOptions, layout: Layout, num_blocks: int, place: str
) -> None:
    """UserError, if asked for, where the engine would not start; said while the config is read.

    given: the options as the user wrote them. A length that is left out is as long as the trace
    asks, which no config can be checked against.
    """
    if not options.check_startup:
        return
    if "max_model_len" not in given:
        raise UserError(
            "engine.max_model_len",
            "is missing; check_startup asks whether a request of so many tokens can run; "
            "allowed: an integer >= 1, or check_startup: false",
        )
    check_startup(layout, options, num_blocks, place)


def _limits(
    model: ModelSpec, layout: Layout, num_blocks: int, limited_by: VLLMOptions | None
) -> Limits:
    """Bytes without the padding, which only loosens the bound; a hit may end at any unit.

    limited_by: options with a `max_model_len` that ends outputs, drafts included.
    """
    longest = None if limited_by is None else limited_by.max_model_len - 1 - limited_by.spec_k
    return Limits(
        layout.kv_bytes_per_token * len(model.attention_layers),
        layout.state_bytes * len(model.recurrent_layers),
        (num_blocks - 1) * layout.bytes_per_block,
        longest_tokens=longest,
    )


def _num_blocks(cache: CacheConfig, layout: Layout) -> int:
    if cache.num_blocks is not None:
        if not 2 <= cache.num_blocks <= _MOST_BLOCKS:
            allowed = f"2 to {_MOST_BLOCKS:,}"
            raise UserError("cache.num_blocks", f"{cache.num_blocks}; allowed: {allowed}")
        return cache.num_blocks
    if not isinstance(cache.memory, int):
        value = "unlimited" if cache.memory == UNLIMITED else "is missing"
        raise UserError("cache.memory", f"{value}; allowed: a size, or cache.num_blocks")
    return blocks_in(cache.memory, layout)


def blocks_in(memory_bytes: int, layout: Layout) -> int:
    """Blocks that fit; UserError where these are too few to run anything, or too many to count."""
    num_blocks = layout.num_blocks(memory_bytes)
    if not 2 <= num_blocks <= _MOST_BLOCKS:
        raise UserError(
            "cache.memory",
            f"{memory_bytes} bytes hold {num_blocks:,} blocks of {layout.bytes_per_block} bytes; "
            f"allowed: room for 2 to {_MOST_BLOCKS:,}",
        )
    return num_blocks


def _outcome(engine: VLLMEngine) -> list[str]:
    """What happened to requests that got less than they asked for."""
    limit = f"max_model_len, {engine.options.max_model_len:,} tokens"
    told = []
    if engine.num_too_long:
        told.append(f"prompts refused for {limit}: {engine.num_too_long:,}")
    if engine.num_cut:
        told.append(f"outputs cut at {limit}: {engine.num_cut:,}")
    if engine.stuck is not None:
        told.append(f"request {engine.stuck} can never be admitted and blocks all behind it")
    return told
