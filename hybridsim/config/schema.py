"""The keys of an experiment, their types and what they allow. It knows no registry of names."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_validator

from hybridsim.config.values import (
    Memory,
    Named,
    NameOrMapping,
    Strict,
    StrictBool,
    StrictFloat,
    StrictInt,
    declared,
)
from hybridsim.errors import UserError, shorten


class TraceConfig(BaseModel):
    """Which requests. Keys beyond these are options of the reader and are checked by it."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    format: str = declared(..., "the name of a trace reader", "trace format, or `generate`")
    path: str | None = declared(
        None, "a path", "trace file, relative to the working directory; not for `generate`"
    )
    first: StrictInt | None = declared(
        None, "an integer >= 1, or null for all", "read only the first requests", ge=1
    )
    warmup: StrictFloat = declared(
        0.0,
        "a fraction >= 0 and < 1",
        "fraction of the requests that fill the cache but are left out of the rates",
        ge=0.0,
        lt=1.0,
    )

    @property
    def options(self) -> dict[str, Any]:
        """Reader options: the keys that are not the trace's own."""
        return dict(self.model_extra or {})


class CacheConfig(Strict):
    """Memory, its split, and the two policies."""

    layout: Literal["split", "shared"] = declared(
        "split", "split, shared", "`split`: a KV pool and a state pool; `shared`: one pool of bytes"
    )
    memory: Memory | None = declared(
        None,
        "a positive size such as 8GiB, 500MB or a number of bytes, or unlimited",
        "KV and states together, on one tensor-parallel rank",
    )
    state_fraction: StrictFloat | None = declared(
        None, "a fraction > 0 and < 1", "share of `memory` for states; split only", gt=0.0, lt=1.0
    )
    kv_tokens: StrictInt | None = declared(
        None, "an integer >= 1", "KV capacity in tokens, instead of `memory`; split only", ge=1
    )
    state_slots: StrictInt | None = declared(
        None, "an integer >= 1", "state capacity in slots, instead of `memory`; split only", ge=1
    )
    num_blocks: StrictInt | None = declared(
        None, "an integer >= 1", "capacity in blocks, for engines that count blocks", ge=1
    )
    page_size: StrictInt = declared(
        16, "an integer, 1 to 2147483647", "tokens in a KV page", ge=1, le=2**31 - 1
    )
    checkpoint: NameOrMapping = declared(
        Named(name="prompt_end"),
        "a checkpoint policy's name, or a mapping with name and options",
        "where states are saved",
    )
    eviction: NameOrMapping = declared(
        Named(name="lru"),
        "an eviction policy's name, or a mapping with name and options",
        "what goes first when memory is short",
    )
    thinning: NameOrMapping | None = declared(
        None,
        "a thinning rule's name, or a mapping with name and options",
        "which states of a path are dropped when another one is saved there",
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: Any) -> Any:
        """`null` takes a key back, so that it can be taken back on a command line."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}

    @model_validator(mode="after")
    def _one_capacity(self) -> "CacheConfig":
        counts = {"kv_tokens": self.kv_tokens, "state_slots": self.state_slots}
        given = [key for key, value in counts.items() if value is not None]
        if self.num_blocks is not None:
            given.append("num_blocks")
        if self.memory is not None and given:
            raise UserError(
                f"cache.{given[0]}",
                f"cannot stand beside cache.memory; allowed: either memory or {given[0]}",
            )
        if self.num_blocks is not None and len(given) > 1:
            raise UserError("cache.num_blocks", f"cannot stand beside cache.{given[0]}")
        if self.state_fraction is not None and self.memory is None:
            raise UserError(
                "cache.state_fraction",
                f"{self.state_fraction} is a share of cache.memory, which is not given; "
                "allowed: memory with state_fraction, or kv_tokens with state_slots",
            )
        self._shared_has_no_split()
        return self

    def _shared_has_no_split(self) -> None:
        if self.layout == "split":
            return
        for key in ("state_fraction", "kv_tokens", "state_slots"):
            if getattr(self, key) is not None:
                raise UserError(
                    f"cache.{key}",
                    f"{getattr(self, key)} has no meaning in layout shared; "
                    "allowed there: memory alone (or layout: split)",
                )


class SchedulerConfig(Strict):
    """Limits of a step; timed only."""

    max_num_seqs: StrictInt = declared(256, "an integer >= 1", "requests running at once", ge=1)
    max_num_batched_tokens: StrictInt = declared(
        8192, "an integer >= 1", "tokens computed in one step, prefill and decode together", ge=1
    )
    chunked_prefill: StrictBool = declared(
        True, "true, false", "cut a prompt that exceeds the step's budget into chunks"
    )
    order: Literal["fcfs", "priority"] = declared(
        "fcfs", "fcfs, priority", "who waits first in line: by arrival, or by the trace's priority"
    )


class ArrivalsConfig(Strict):
    """When requests are sent; timed only."""

    mode: Literal["recorded", "closed_loop", "serial"] = declared(
        "recorded",
        "recorded, closed_loop, serial",
        "`recorded`: at the trace's times; `closed_loop`: a turn follows its previous one's end; "
        "`serial`: one at a time",
    )
    rate_scale: StrictFloat = declared(
        1.0, "a number > 0", "2 sends twice as fast: times and delays are halved", gt=0.0
    )


class PlotConfig(Strict):
    """One figure, drawn from the result tables."""

    kind: Literal["curve", "cdf", "steps", "losses"] = declared(
        "curve",
        "curve, cdf, steps, losses",
        "`curve`: metrics of the summary over a swept key; `cdf`: distribution over requests; "
        "`steps`: time series of engine steps; `losses`: why tokens were not reused, over a swept "
        "key",
    )
    x: str | None = declared(None, "a config key", "x axis of a curve")
    y: Annotated[
        tuple[str, ...],
        BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    ] = declared((), "a metric, or a list of metrics", "what is drawn")
    line: str | None = declared(None, "a config key", "one line for each of its values")


class RunConfig(Strict):
    """Everything that decides the numbers of one run."""

    mode: Literal["replay", "timed"] = declared(
        "replay", "replay, timed", "`replay`: one request after another, no clock; `timed`: events"
    )
    trace: TraceConfig = declared(..., "a mapping", "the requests")
    model: str | dict[str, Any] = declared(
        ..., "a catalogue name, the path of a config.json, or a mapping", "the model"
    )
    engine: NameOrMapping = declared(
        Named(name="research"),
        "an engine's name, or a mapping with name and options",
        "whose rules the cache follows",
    )
    cache: CacheConfig = declared(..., "a mapping", "the cache")
    gpu: str | dict[str, Any] | None = declared(
        None,
        "a GPU's name, or a mapping",
        "whose step times: a name alone takes a roofline, `{name: h200, cost: measured}` a "
        "measured profile ([cost.md](cost.md)); timed only, and weights and cache must fit its "
        "memory",
    )
    tp: StrictInt = declared(
        1, "an integer >= 1", "tensor-parallel ranks; sizes are of one rank", ge=1
    )
    scheduler: SchedulerConfig = declared(
        SchedulerConfig(), "a mapping", "limits of a step; timed only"
    )
    arrivals: ArrivalsConfig = declared(ArrivalsConfig(), "a mapping", "sending times; timed only")
    bound: StrictBool = declared(
        True,
        "true, false",
        "prove how much any policy could hit in the same memory (timed: and in the same batches)",
    )
    seed: StrictInt = declared(0, "an integer >= 0", "seed of all randomness", ge=0)

    @model_validator(mode="after")
    def _timed_needs_a_gpu(self) -> "RunConfig":
        if self.mode == "timed" and self.gpu is None:
            raise UserError("gpu", "is missing; mode timed needs a GPU's name, such as h200")
        return self


_MOST_NAME_BYTES = 200  # file systems take 255; names of files beside the folder are longer


def _short_name(name: str) -> str:
    if len(name.encode()) > _MOST_NAME_BYTES:
        found = f"{shorten(name)!r} is too long for the name of a folder"
        raise UserError("name", f"{found}; allowed: {_MOST_NAME_BYTES} bytes of text")
    return name


class ExperimentHead(Strict):
    """The keys of an experiment that are no part of a run."""

    name: Annotated[str, AfterValidator(_short_name)] = declared(
        ...,
        f"letters, digits, '.', '_' and '-', at most {_MOST_NAME_BYTES} bytes",
        "names the result folder",
        pattern=r"^\w[\w.-]*$",
    )
    plots: tuple[PlotConfig, ...] | None = declared(
        None, "a list of mappings", "figures; left out: those that fit the sweep"
    )
