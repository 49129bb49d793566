"""From a YAML file and `--set` overrides to a list of validated runs. It builds no objects."""

import copy
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel

from hybridsim.config.explain import validate
from hybridsim.config.overrides import override, set_at
from hybridsim.config.schema import ExperimentHead, PlotConfig, RunConfig
from hybridsim.config.source import KeyPath, Source, read_source
from hybridsim.config.values import Named, exact_size
from hybridsim.errors import UserError, did_you_mean, shorten

T = TypeVar("T", bound=BaseModel)

_HEAD = set(ExperimentHead.model_fields)
_MAX_RUNS = 20_000  # a few missing brackets multiply; nobody waits for more


@dataclass(frozen=True, slots=True)
class Run:
    """One run: its config, what the sweep set in it, and where that is written in the file."""

    config: RunConfig
    swept: dict[str, Any]
    places: dict[str, KeyPath]

    @property
    def run_id(self) -> str:
        """A hash of all that decides the numbers; names the run's folder."""
        text = json.dumps(self.config.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def label(self) -> str:
        """`cache.memory=1GiB cache.checkpoint=none`, for people."""
        return " ".join(f"{path}={value}" for path, value in self.swept.items()) or "the only run"

    def to_yaml(self) -> str:
        """The run as an experiment file of its own, defaults included."""
        data = {"name": f"run-{self.run_id}", **self.config.model_dump(mode="json")}
        return yaml.safe_dump(data, sort_keys=False)


@dataclass(frozen=True, slots=True)
class Experiment:
    """A named list of runs and the figures that they end in."""

    name: str
    plots: tuple[PlotConfig, ...] | None
    axes: tuple[str, ...]
    runs: list[Run]
    source: Source

    def relocate(self, error: UserError, run: Run) -> UserError:
        """The same error at the file and line that gave the value, if its place is a config key."""
        return _relocate(error, run.places, self.source)


def load_experiment(path: Path, overrides: Iterable[str] = ()) -> Experiment:
    """Read, override, expand and validate; raises UserError before anything has run."""
    return expand(override(read_source(path), overrides))


def expand(source: Source) -> Experiment:
    """All runs of an experiment: a product of the swept paths, or a union of products."""
    head = _located(ExperimentHead, {k: v for k, v in source.data.items() if k in _HEAD}, source)
    base = {key: value for key, value in source.data.items() if key not in _HEAD | {"sweep"}}
    runs: dict[str, Run] = {}
    axes: dict[str, None] = {}
    for prefix, product in _products(source):
        axes.update(dict.fromkeys(product))
        for places in _points(prefix, product):
            run = _run(base, product, places, source)
            runs.setdefault(run.run_id, run)
    _check_sweep(list(runs.values()), tuple(axes), source)
    if not source.may_drop_plots:
        for index, plot in enumerate(head.plots or ()):
            check_axes(plot, index, tuple(axes), source)
    full = [Run(run.config, _columns(run.config, axes), run.places) for run in runs.values()]
    return Experiment(head.name, head.plots, tuple(axes), full, source)


def value_at(config: BaseModel, dotted: str) -> Any:
    """The value at a dotted path as it stands in tables: texts and numbers, None where absent."""
    value: Any = config
    for part in dotted.split("."):
        if isinstance(value, BaseModel):
            extra = value.model_extra or {}
            value = getattr(value, part) if part in type(value).model_fields else extra.get(part)
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, Named):
        return str(value)
    if isinstance(value, Mapping):
        return str(Named(**{"name": "inline", **value}))
    return exact_size(value) if dotted == "cache.memory" and value is not None else value


def _products(source: Source) -> Iterator[tuple[KeyPath, dict[str, list[Any]]]]:
    """The products of the sweep, each with the place where it is written."""
    sweep = source.data.get("sweep")
    if sweep is None:
        sweep = {}
    allowed = "a mapping of dotted paths to lists, or a list of such mappings"
    products = sweep if isinstance(sweep, list) else [sweep]
    if not products:
        raise UserError(source.place("sweep"), f"[] sweeps nothing; allowed: {allowed}")
    num_runs = 0
    for index, product in enumerate(products):
        prefix: KeyPath = ("sweep", str(index)) if isinstance(sweep, list) else ("sweep",)
        if not isinstance(product, dict):
            raise UserError(
                source.place(prefix), f"{shorten(repr(product))} is not allowed; allowed: {allowed}"
            )
        for path, values in product.items():
            _check_axis(path, values, list(product), source.place((*prefix, path)))
        num_runs += prod(len(values) for values in product.values())
        if num_runs > _MAX_RUNS:
            raise UserError(
                source.place(prefix), f"makes {num_runs:,} runs; allowed: at most {_MAX_RUNS:,}"
            )
        yield prefix, product


def _check_axis(path: str, values: Any, axes: list[str], place: str) -> None:
    if not isinstance(values, list) or not values:
        raise UserError(
            place, f"{shorten(repr(values))} is not allowed; allowed: a list of at least one value"
        )
    for index, value in enumerate(values):
        if value in values[:index]:
            raise UserError(
                place, f"{shorten(repr(value))} stands twice in the list; allowed: each value once"
            )
    if not all(path.split(".")):
        raise UserError(place, f"{path!r} has an empty part; allowed: a dotted path such as a.b")
    if path.split(".")[0] in _HEAD | {"sweep"}:
        raise UserError(
            place, f"{path} is no part of a run; allowed: {', '.join(RunConfig.model_fields)}"
        )
    for other in axes:
        if other != path and other.startswith(f"{path}."):
            raise UserError(place, f"{other} is swept too; allowed: one of them in a product")


def _points(prefix: KeyPath, product: dict[str, list[Any]]) -> Iterator[dict[str, KeyPath]]:
    """For each point of the product, where each of its values is written."""
    ranges = [[(*prefix, path, str(i)) for i in range(len(vs))] for path, vs in product.items()]
    for point in itertools.product(*ranges):
        yield dict(zip(product, point, strict=True))


def _run(
    base: dict[str, Any], product: dict[str, list[Any]], places: dict[str, KeyPath], source: Source
) -> Run:
    data = copy.deepcopy(base)
    try:
        for path, place in places.items():
            value = copy.deepcopy(product[path][int(str(place[-1]))])
            set_at(data, path, value, path)
        return Run(validate(RunConfig, data), {}, places)
    except UserError as error:
        raise _relocate(error, places, source) from None


def _relocate(error: UserError, places: dict[str, KeyPath], source: Source) -> UserError:
    for path, place in places.items():
        if f"{error.place}.".startswith(f"{path}."):
            # the index of the value finds its line; the key alone is what people look for
            at = source.place(place).removesuffix(f".{place[-1]}")
            inner = error.place.removeprefix(path)
            return UserError(at + inner, error.message)
    top = error.place.split(".")[0]
    known = top in RunConfig.model_fields or top in source.data or error.place == "experiment"
    if not known:
        own = [place for path, place in places.items() if path.startswith(f"{error.place}.")]
        return UserError(source.place(own[0][:-1]), error.message) if own else error
    place_text = source.place("" if error.place == "experiment" else error.place)
    return UserError(place_text, error.message)


def _located(model: type[T], data: Any, source: Source) -> T:
    try:
        return validate(model, data)
    except UserError as error:
        raise _relocate(error, {}, source) from None


def _columns(config: RunConfig, axes: Iterable[str]) -> dict[str, Any]:
    return {path: value_at(config, path) for path in axes}


# What a key changes only in one mode, so that sweeping it in the other would only repeat runs.
_TIMED_ONLY = ("gpu", "scheduler", "arrivals")


def _check_sweep(runs: list[Run], axes: tuple[str, ...], source: Source) -> None:
    if any(run.config.mode == "timed" for run in runs):
        return
    for path in axes:
        if path.split(".")[0] in _TIMED_ONLY and not _single(runs, path):
            raise UserError(
                source.place(("sweep", path)),
                f"{path} changes nothing in mode replay; allowed: mode: timed, or no such axis",
            )


def _single(runs: list[Run], path: str) -> bool:
    return len({str(value_at(run.config, path)) for run in runs}) <= 1


def check_axes(plot: PlotConfig, index: int, axes: tuple[str, ...], source: Source) -> None:
    """UserError where the figure at `index` of `plots` asks for a key that is not swept."""
    place = ("plots", str(index))
    for key in ("x", "line"):
        path = getattr(plot, key)
        if path is not None and path not in axes:
            near = did_you_mean(path, axes)
            allowed = ", ".join(axes) or "nothing (the experiment has no sweep)"
            at = source.place((*place, key))
            raise UserError(at, f"{path!r} is not swept{near}; allowed: {allowed}")
    if plot.kind == "curve" and (plot.x is None or not plot.y):
        missing = "x" if plot.x is None else "y"
        allowed = "a mapping with x and y"
        raise UserError(source.place(place), f"a curve has no {missing}; allowed: {allowed}")
