"""Measured profiles as work and seconds: what each point of their parts counts and took."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hybridsim.cost.counts import StepCounts, count_step
from hybridsim.cost.gpus import Gpu
from hybridsim.cost.least_squares import Floors, fit_floors
from hybridsim.cost.parts import PARTS, At
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.cost.work import Work, step_work
from hybridsim.models import ModelSpec, get_model


@dataclass(frozen=True)
class Source:
    """A profile's JSON object and the rank that it is of."""

    data: Mapping[str, Any]
    model: ModelSpec

    @staticmethod
    def of(data: Mapping[str, Any]) -> "Source":
        return Source(data, get_model(data["model"]).for_rank(data["tp"]))


@dataclass(frozen=True, slots=True)
class ClassFit:
    """One class of a fit: coefficients (1 / share) of both floors, and what the whole fit has.

    is_bound: whether some point is bound by operations; if none is, `compute` is a lower bound.
    """

    compute: float
    memory: float
    fixed_s: float
    is_bound: bool
    error: float

    @staticmethod
    def of(floors: Floors, index: int) -> "ClassFit":
        """The class `index`. Launches are those of the first class of a part."""
        return ClassFit(
            floors.compute[index],
            floors.memory[index],
            0.0 if index else floors.fixed_s,
            floors.num_compute[index] > 0,
            floors.error,
        )


@dataclass(frozen=True)
class Bench:
    """Profiles of one card, to be fitted together."""

    gpu: Gpu
    sources: Sequence[Source]

    def points(self, names: Sequence[str], kind: str = "") -> Iterator[tuple[list[Work], float]]:
        """Work and seconds of the points of some parts; only those of layers of `kind`, if given.

        A part that a profile has not is left out.
        """
        for source in self.sources:
            for name in filter(source.data["operators"].__contains__, names):
                for point in source.data["operators"][name]["points"]:
                    works = work_at(name, source.model, tuple(point["at"]))
                    if not kind or works[0].kind == kind:
                        yield works, point["median_s"]

    def fit(
        self, *names: str, kind: str = "", memory: Mapping[str, float] | None = None
    ) -> dict[str, "ClassFit"]:
        """The classes of kernels in the named parts, from their points together.

        memory: coefficients of classes that are known from elsewhere. No share may pass what a
        plain matrix product or copy attained in the same runs.
        """
        points = list(self.points(names, kind))
        found = list(dict.fromkeys(one.part for works, _ in points for one in works))
        known = {found.index(part): value for part, value in (memory or {}).items()}
        floors = np.array([_floors(works, found, self.gpu) for works, _ in points])
        launches = np.array([float(works[0].num_launches) for works, _ in points])
        least = (
            self.gpu.flops_per_s / self.best("matmul_flops_per_s"),
            self.gpu.hbm_bytes_per_s / self.best("copy_bytes_per_s"),
        )
        seconds = np.array([seconds for _, seconds in points])
        result = fit_floors(floors, launches, seconds, least, known)
        return {part: ClassFit.of(result, index) for index, part in enumerate(found)}

    def has(self, names: Sequence[str], kind: str = "") -> bool:
        """Whether there are points of these parts with layers of `kind`."""
        return next(self.points(names, kind), None) is not None

    def best(self, floor: str) -> float:
        """The highest plain rate of the card in any of the runs."""
        return max(float(source.data["floors"][floor]) for source in self.sources)


@cache
def _counts(model: ModelSpec) -> StepCounts:
    return count_step(model)


def work_at(name: str, model: ModelSpec, at: At) -> list[Work]:
    """What a part of a profile does at a point of its grid."""
    part = PARTS[name]
    step = part.step_at(at, model.state_bytes)
    return [work for work in step_work(_counts(model), *step) if work.part in part.classes]


def _floors(works: list[Work], parts: Sequence[str], gpu: Gpu) -> list[tuple[float, float]]:
    """Both floors in seconds at peak rates, a pair for each class of kernels."""
    return [
        (
            sum(work.flops for work in works if work.part == part) / gpu.flops_per_s,
            sum(work.moved_bytes for work in works if work.part == part) / gpu.hbm_bytes_per_s,
        )
        for part in parts
    ]


def shipped_sources(gpu_name: str) -> dict[str, Source]:
    """The profiles of a card that ship, by the stem of their file."""
    return {
        path.stem: Source.of(json.loads(path.read_text()))
        for (gpu, _, _), path in shipped_profiles().items()
        if gpu == gpu_name
    }
