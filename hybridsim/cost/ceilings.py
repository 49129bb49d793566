"""`python -m hybridsim.cost.ceilings`: what kernels attain of the peak rates, fitted on a profile.

Writes the shares and fixed times that `roofline` takes for every GPU (`ceilings.json`). Each class
of kernels is fitted on the points of its part of a measured profile; the time of a step that no
part has is fitted on the profile's own whole steps. No held-out step is looked at.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hybridsim.cost import efficiency as classes
from hybridsim.cost import work as count
from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.counts import StepCounts, count_step
from hybridsim.cost.efficiency import Efficiency, parse_efficiency
from hybridsim.cost.fitting import chunks_of
from hybridsim.cost.gpus import GPUS, Gpu
from hybridsim.cost.least_squares import LargerOfTwo, fit_larger_of_two
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.cost.relative import Rows, fit_relative
from hybridsim.cost.roofline import RooflineCost
from hybridsim.cost.work import Work
from hybridsim.models import ModelSpec, get_model

FORMAT = "hybridsim-ceilings-1"
BASE = ("h200", "qwen3.5-0.8b", 1)
# No profile of a single GPU has these: a ring's share of the link, an all-reduce's latency.
ASSUMED = {"link": 0.7, "allreduce_latency_s": 8e-6}
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


def fit_part(
    data: Mapping[str, Any],
    model: ModelSpec,
    gpu: Gpu,
    *names: str,
    memory: float | None = None,
) -> LargerOfTwo:
    """Coefficients (1 / share) of a class of kernels, from the points of the named parts.

    A part that the profile has not is left out. No share may pass what a plain matrix product or
    copy attained in the same run.
    """
    terms, seconds = [], []
    for name in filter(data["operators"].__contains__, names):
        for point in data["operators"][name]["points"]:
            terms.append(_terms(work_at(name, model, tuple(point["at"])), gpu))
            seconds.append(point["median_s"])
    compute = gpu.flops_per_s / data["floors"]["matmul_flops_per_s"]
    streams = gpu.hbm_bytes_per_s / data["floors"]["copy_bytes_per_s"]
    least = (compute, streams, streams, 0.0)
    return fit_larger_of_two(np.array(terms), np.array(seconds), least, memory)


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


def fit_classes(data: Mapping[str, Any], model: ModelSpec, gpu: Gpu) -> dict[str, dict[str, float]]:
    """Shares, fixed times and errors of every class of kernels."""
    fit = partial(fit_part, data, model, gpu)
    head = fit("head")
    # Dense layers stream their weights as the head does, the one product that is measured alone;
    # what few tokens take beyond that are the launches and drains of each layer.
    dense = fit("dense", memory=head.memory)
    prefill, scan = fit("full_prefill", "full_prefill_of_4"), fit("recurrent_prefill")
    return {
        classes.MATMUL: _ceiling(dense),
        classes.POINTWISE: _ceiling(dense) | {"memory": 1 / dense.extra, "fixed_s": 0.0},
        classes.HEAD: _ceiling(head),
        # The base model has no experts: their products are taken to attain what others do.
        classes.EXPERTS: _ceiling(fit("experts") if "experts" in data["operators"] else dense),
        classes.ATTENTION_PREFILL: _ceiling(prefill),
        classes.ATTENTION_DECODE: _ceiling(fit("full_decode"), prefill),
        classes.SCAN_PREFILL: _ceiling(scan),
        classes.SCAN_DECODE: _ceiling(fit("recurrent_decode"), scan),
        classes.COPY: _ceiling(fit("copy"), dense),
    }


def _ceiling(fit: LargerOfTwo, compute_of: LargerOfTwo | None = None) -> dict[str, float]:
    """`compute_of`: whose compute share stands in where memory bounds all points."""
    compute = compute_of if compute_of is not None and not fit.num_compute else fit
    return {
        "compute": 1 / compute.compute,
        "memory": 1 / fit.memory,
        "fixed_s": fit.fixed_s,
        "error": fit.error,
    }


def fit_overhead(data: Mapping[str, Any], model: ModelSpec, gpu: Gpu, rest: Efficiency) -> float:
    """Seconds of a step beyond its parts: least squares of relative errors on the fit's steps."""
    cost = RooflineCost(model, gpu, rest)
    steps = data["fit_steps"]
    measured = np.array([step["median_s"] for step in steps])
    parts = np.array([
        cost.step_s(chunks_of(step), step["num_decodes"], step["decode_context_tokens"])
        for step in steps
    ])  # fmt: skip
    return max(0.0, float(np.sum((1 - parts / measured) / measured) / np.sum(measured**-2.0)))


def fit_ceilings(data: Mapping[str, Any], gpu: Gpu, rows: Rows) -> dict[str, Any]:
    """The ceilings file, from a profile and the kernels' table of the same card."""
    model = get_model(data["model"]).for_rank(data["tp"])
    found: dict[str, Any] = {
        "format": FORMAT,
        "gpu": gpu.name,
        "model": data["model"],
        "machine": data["machine"],
        "floors": data["floors"],
        "classes": fit_classes(data, model, gpu),
        "relative": fit_relative(rows),
        "step_overhead_s": 0.0,
        "assumed": ASSUMED,
    }
    found["step_overhead_s"] = fit_overhead(data, model, gpu, parse_efficiency(found))
    return _rounded(found)


def _rounded(value: Any) -> Any:
    """To six digits, so that another machine's last bits do not show."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.cost.ceilings", description=__doc__)
    parser.add_argument("--kernels", type=Path, default=Path("results/kernels/h200.json"))
    parser.add_argument("--out", type=Path, default=classes.SHIPPED)
    options = parser.parse_args()
    data = json.loads(shipped_profiles()[BASE].read_text())
    rows = json.loads(options.kernels.read_text())["rows"]
    found = fit_ceilings(data, GPUS[BASE[0]], rows)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
