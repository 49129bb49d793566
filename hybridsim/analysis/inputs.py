"""What an analysis command works on: an experiment file, or a trace and a few options.

Both end in the same runs, so that keys, checks and errors are those of experiments.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.lines import Line, grid_lines, lru_policies, policy_of_text
from hybridsim.config import (
    UNLIMITED,
    Experiment,
    RunConfig,
    Source,
    expand,
    load_experiment,
    override,
    validate,
)
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec, get_model
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.request import Request, Trace
from hybridsim.traces import open_trace, read_trace, require_content
from hybridsim.traces.content import no_content_error
from hybridsim.traces.detect import detect_format

_OPTIONS = ("compute_last_token", "cache_outputs")


@dataclass(frozen=True, slots=True)
class Subject:
    """A trace, a model and the rules of the research cache.

    `policies`: label -> checkpoint policy. `memories_bytes`: the sizes that the experiment sweeps.
    `model` is one tensor-parallel rank. `notes`: what of the experiment is left out, and why.
    `config`: of one of its runs; all of them agree in trace, model, layout and page size.
    `lines`: policies of all kinds, for replays; `policies` of LRU alone.
    """

    name: str
    trace: Trace
    model: ModelSpec
    rules: CacheRules
    layout: str
    policies: Mapping[str, CheckpointPolicy]
    memories_bytes: tuple[int, ...]
    state_fractions: tuple[float, ...]
    num_warmup: int
    config: RunConfig
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of a command, None where not given; `options` are the reader's."""

    format: str | None = None
    model: str | None = None
    checkpoint: tuple[str, ...] = ()
    eviction: tuple[str, ...] = ()
    thinning: tuple[str, ...] = ()
    layout: str | None = None
    page_size: int | None = None
    warmup: float | None = None
    first: int | None = None
    options: Mapping[str, object] | None = None
    overrides: tuple[str, ...] = ()


def load_subject(path: Path, wish: Wish) -> Subject:
    """Read and check everything; UserError names file, line or option."""
    experiment = _loaded(path, wish)
    runs = [_wished(run.config, wish) for run in experiment.runs]
    config = _the_one(runs, path)
    model = get_model(config.model).for_rank(config.tp)
    if config.cache.layout == "split" and not model.kv_bytes_per_token:
        raise UserError("--layout", f"{model.name} has no KV to keep apart; allowed: shared")
    trace = _trace(config)
    policies, notes = lru_policies(runs)
    if wish.checkpoint:
        policies = dict(map(policy_of_text, wish.checkpoint))
    fractions = {run.cache.state_fraction for run in runs} - {None}
    memories = {run.cache.memory for run in runs} - {None, UNLIMITED}
    return Subject(
        name=experiment.name,
        trace=trace,
        model=model,
        rules=_rules(config, model),
        layout=config.cache.layout,
        policies=policies,
        memories_bytes=tuple(sorted(int(size) for size in memories if size is not None)),
        state_fractions=tuple(sorted(float(f) for f in fractions if f is not None)),
        num_warmup=int(len(trace.requests) * config.trace.warmup),
        config=config,
        lines=grid_lines(runs, wish.checkpoint, wish.eviction, wish.thinning),
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class TraceSource:
    """A trace that is read anew each time, for what need not hold it as a whole.

    `warmup`: fraction of its requests that are left out of rates.
    """

    name: str
    config: RunConfig

    @classmethod
    def of(cls, path: Path, wish: Wish) -> "TraceSource":
        """Check all but the trace's content."""
        experiment = _loaded(path, wish)
        runs = [_wished(run.config, wish) for run in experiment.runs]
        return cls(experiment.name, _the_one(runs, path))

    @property
    def warmup(self) -> float:
        return self.config.trace.warmup

    def requests(self) -> Iterator[Request]:
        """From the start; UserError where the trace tells lengths only."""
        trace = self.config.trace
        stream = open_trace(
            trace.path,
            trace.format,
            first=trace.first,
            options=trace.options,
            seed=self.config.seed,
        )
        yield from stream.requests
        if not stream.notes.has_content:
            raise no_content_error(stream.name)


def is_experiment(path: Path) -> bool:
    """Whether the file is an experiment, not a trace."""
    return path.suffix in (".yaml", ".yml")


def _name_from(path: Path) -> str:
    """The file's name up to the first dot, made one that an experiment may have."""
    return re.sub(r"[^\w-]+", "-", path.name.split(".")[0]).strip("-") or "trace"


def _loaded(path: Path, wish: Wish) -> Experiment:
    """The experiment; a trace file is one of one run, in one shared pool of any size."""
    if is_experiment(path):
        return load_experiment(path, wish.overrides)
    if not path.exists():
        raise UserError(str(path), "does not exist; allowed: an experiment (.yaml) or a trace")
    data = {
        "name": _name_from(path),
        "trace": {
            "format": wish.format or detect_format(path),
            "path": str(path),
            **(wish.options or {}),
        },
        "model": wish.model,
        "cache": {"memory": UNLIMITED, "layout": "shared"},
    }
    source = override(Source("command line", data), wish.overrides)
    if source.data["model"] is None:
        raise UserError("--model", "is missing; a trace needs a model's name, such as qwen3.5-0.8b")
    return expand(source)


def _wished(config: RunConfig, wish: Wish) -> RunConfig:
    """The run with the command's options in the place of the file's."""
    data = config.model_dump()
    for key, value in (("layout", wish.layout), ("page_size", wish.page_size)):
        if value is not None:
            data["cache"][key] = value
    given = {"warmup": wish.warmup, "first": wish.first, "format": wish.format}
    data["trace"] |= {key: value for key, value in given.items() if value is not None}
    data["trace"] |= wish.options or {}
    if wish.model is not None:
        data["model"] = wish.model
    if data["cache"]["layout"] == "shared":
        data["cache"].update(dict.fromkeys(("state_fraction", "kv_tokens", "state_slots")))
    return validate(RunConfig, data)


def _the_one(runs: Iterable[RunConfig], path: Path) -> RunConfig:
    """One of the runs, if they agree in all that an analysis cannot put into one picture."""
    seen: dict[str, str] = {}
    first: RunConfig | None = None
    for run in runs:
        first = first or run
        values = {
            "trace": run.trace, "model": run.model, "tp": run.tp, "engine": run.engine,
            "cache.layout": run.cache.layout, "cache.page_size": run.cache.page_size,
            "seed": run.seed,
        }  # fmt: skip
        for key, value in values.items():
            if seen.setdefault(key, repr(value)) != repr(value):
                allowed = f"one value, such as --set {key}=..."
                raise UserError(f"{path}: {key}", f"differs between runs; allowed here: {allowed}")
    assert first is not None
    if first.engine.name != "research":
        raise UserError(
            f"{path}: engine", f"{first.engine.name!r} has rules of its own; allowed here: research"
        )
    return first


def _trace(config: RunConfig) -> Trace:
    trace = config.trace
    found = read_trace(
        trace.path, trace.format, first=trace.first, options=trace.options, seed=config.seed
    )
    require_content(found)
    return found


def _rules(config: RunConfig, model: ModelSpec) -> CacheRules:
    options = config.engine.options
    for key, value in options.items():
        if key not in _OPTIONS or not isinstance(value, bool):
            allowed = ", ".join(f"{name}: true or false" for name in _OPTIONS)
            raise UserError(f"engine.{key}", f"{value!r} is not allowed; allowed: {allowed}")
    return CacheRules(
        model.kv_bytes_per_token,
        model.state_bytes,
        config.cache.page_size,
        outputs=options.get("cache_outputs", True),
        caps_last_token=options.get("compute_last_token", True),
        running_states=1,
    )
