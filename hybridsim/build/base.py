"""What every engine's builder is made of: what it takes, what it gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from hybridsim.cache.base import PrefixCache
from hybridsim.config import CacheConfig
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec
from hybridsim.records import RequestRecord
from hybridsim.request import Request
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


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds any policy in this memory, in bytes.

    `capacity_bytes`: of one shared pool, or of the KV pool if `state_capacity_bytes` is given.
    `page_tokens`: a hit is a multiple of it. `kv_bytes_per_token` and `state_bytes` must not be
    more than the cache really takes.
    `in_blocks`: `capacity_bytes` counts blocks of the trace, and there are no states.
    `takes_room`: a running request has its KV, and its state unless `states_apart`, in this memory.
    `longest_tokens`: of longer requests no more than the prompt may be computed.
    `window`: tokens of a sliding window, and of its own pool of KV; a hit needs one window of it.
    `plan_pools`: memories in which plans surely can be followed, as (`capacity_bytes`,
    `state_capacity_bytes`), the best of which counts; none: in the memory as it is.
    `held_bytes()`: what was held after each request of the run, where that may pass the capacity.
    `note`: what a reader must know of the bound.
    """

    kv_bytes_per_token: int
    state_bytes: int
    capacity_bytes: float
    state_capacity_bytes: float | None = None
    page_tokens: int = 1
    in_blocks: bool = False
    takes_room: bool = True
    states_apart: bool = False
    longest_tokens: int | None = None
    window: tuple[int, int] | None = None
    plan_pools: tuple[tuple[float, float | None], ...] = ()
    held_bytes: Callable[[], Sequence[int]] | None = None
    note: str = ""


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
    `usage` gives further summary columns after a run, such as peaks in bytes; `outcome` sentences
    about what happened that no number tells, such as the death of the modelled engine.
    `limits`: for the bound on what any policy could hit; None for unlimited memory.
    `prepare(requests, seed)` comes before the first request, for policies that want to know them.
    `keeps_outputs`, `keeps_last_output` (even the last generated token, which is never fed back),
    `caps_last_token`: what the infinite cache of the ceiling does too.
    """

    replay: Replay
    cache: PrefixCache | None
    usage: Callable[[], dict[str, float]]
    capacity: Capacity
    model: ModelSpec
    keeps_outputs: bool
    caps_last_token: bool
    notes: tuple[str, ...] = ()
    outcome: Callable[[], list[str]] = list
    limits: Limits | None = None
    prepare: Callable[[Sequence[Request], int], None] = lambda requests, seed: None
    keeps_last_output: bool = False


class NoOptions(BaseModel):
    """An engine without options."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Engine:
    """An entry of ENGINES. `cache_keys` are those keys of `cache` that mean something to it."""

    options: type[BaseModel]
    cache_keys: frozenset[str]
    build: Callable[[CacheConfig, ModelSpec, Any], Built]


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
        record = server.serve(request)
        record.arrival_s = None  # replay has no clock
        records.append(record)
        progress(index + 1, len(requests))
    server.check()
    return records


def needed(value: Any, place: str, allowed: str) -> Any:
    if value is None:
        raise UserError(place, f"is missing; allowed: {allowed}")
    return value


def refuse_too_small(needed_bytes: int, given_bytes: int, place: str, what: str) -> None:
    if given_bytes < needed_bytes:
        raise UserError(
            place,
            f"gives {format_bytes(given_bytes)}, too little for {what}; "
            f"allowed: at least {format_bytes(needed_bytes)} of it",
        )


def cache_keys(*left_out: str) -> frozenset[str]:
    return frozenset(CacheConfig.model_fields) - frozenset(left_out)
