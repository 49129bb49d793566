"""Measured profiles as work and seconds: what each point of their parts counts and took."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from hybridsim.cost import efficiency as classes
from hybridsim.cost import work as count
from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.counts import StepCounts, count_step
from hybridsim.cost.gpus import Gpu
from hybridsim.cost.least_squares import LargerOfTwo, fit_larger_of_two
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.cost.work import Work
from hybridsim.models import ModelSpec, get_model

At = tuple[int, ...]


def _decode_at(counts: StepCounts, at: At) -> list[Work]:
    num_decodes, context = at
    return [
        count.attention_decode_work(
            kind, num_decodes, count.keys_read(kind, num_decodes, num_decodes * context)
        )
        for kind in counts.attention
    ]


def _prefill_at(part: str, counts: StepCounts, chunks: list[PrefillChunk]) -> list[Work]:
    return [work for work in count.prefill_work(counts, chunks) if work.part == part]


# A profile's part -> what the step counts say of one of its points.
WORK_AT: dict[str, Callable[[StepCounts, At], list[Work]]] = {
    "dense": lambda counts, at: count.token_work(counts, at[0], 0)[:2],
    "head": lambda counts, at: count.token_work(counts, 0, at[0])[2:3],
    "recurrent_prefill": lambda counts, at: _prefill_at(
        classes.SCAN_PREFILL, counts, [PrefillChunk(at[0], 0)] * at[1]
    ),
    "recurrent_decode": lambda counts, at: count.scan_decode_work(counts, at[0]),
    "full_prefill": lambda counts, at: _prefill_at(
        classes.ATTENTION_PREFILL, counts, [PrefillChunk(at[0], at[1])]
    ),
    "full_prefill_of_4": lambda counts, at: _prefill_at(
        classes.ATTENTION_PREFILL, counts, [PrefillChunk(at[0], at[1])] * 4
    ),
    "full_decode": _decode_at,
    "experts": lambda counts, at: [
        work for work in count.token_work(counts, at[0], 0) if work.part == classes.EXPERTS
    ],
}


@dataclass(frozen=True)
class Source:
    """A profile's JSON object and the rank that it is of."""

    data: Mapping[str, Any]
    model: ModelSpec

    @staticmethod
    def of(data: Mapping[str, Any]) -> "Source":
        return Source(data, get_model(data["model"]).for_rank(data["tp"]))


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

    def fit(self, *names: str, kind: str = "", memory: float | None = None) -> LargerOfTwo:
        """Coefficients (1 / share) of a class of kernels, from the points of the named parts.

        No share may pass what a plain matrix product or copy attained in the same runs.
        """
        points = list(self.points(names, kind))
        terms = np.array([_terms(works, self.gpu) for works, _ in points])
        seconds = np.array([seconds for _, seconds in points])
        compute = self.gpu.flops_per_s / self.best("matmul_flops_per_s")
        streams = self.gpu.hbm_bytes_per_s / self.best("copy_bytes_per_s")
        return fit_larger_of_two(terms, seconds, (compute, streams, streams, 0.0), memory)

    def factor(self, of: LargerOfTwo, kind: str, *names: str) -> float | None:
        """Rates of layers of `kind` over those of `of`, with the same fixed times; None if absent.

        Least squares of relative errors, in 1 / factor.
        """
        points = list(self.points(names, kind))
        if not points:
            return None
        terms = np.array([_terms(works, self.gpu) for works, _ in points])
        seconds = np.array([seconds for _, seconds in points])
        floors = np.maximum(terms[:, 0] * of.compute, terms[:, 1] * of.memory) / seconds
        rest = 1 - terms[:, 3] * of.fixed_s / seconds
        return float(np.sum(floors**2) / np.sum(floors * rest))

    def best(self, floor: str) -> float:
        """The highest plain rate of the card in any of the runs."""
        return max(float(source.data["floors"][floor]) for source in self.sources)


@cache
def _counts(model: ModelSpec) -> StepCounts:
    return count_step(model)


def work_at(name: str, model: ModelSpec, at: At) -> list[Work]:
    """What a part of a profile does at a point of its grid."""
    if name == "copy":
        return [count.copy_work(at[0] * model.state_bytes)]
    return WORK_AT[name](_counts(model), at)


def _terms(works: list[Work], gpu: Gpu) -> list[float]:
    """Both floors in seconds at peak rates, those of pointwise operators apart, launches."""
    extra = sum(work.moved_bytes for work in works if work.part == classes.POINTWISE)
    main = [work for work in works if work.part != classes.POINTWISE]
    return [
        sum(work.flops for work in main) / gpu.flops_per_s,
        sum(work.moved_bytes for work in main) / gpu.hbm_bytes_per_s,
        extra / gpu.hbm_bytes_per_s,
        sum(work.num_launches for work in main),
    ]


def shipped_sources(gpu_name: str) -> dict[str, Source]:
    """The profiles of a card that ship, by the stem of their file."""
    return {
        path.stem: Source.of(json.loads(path.read_text()))
        for (gpu, _, _), path in shipped_profiles().items()
        if gpu == gpu_name
    }
