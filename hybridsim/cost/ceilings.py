"""`python -m hybridsim.cost.ceilings`: what kernels attain of the peak rates, fitted on a profile.

Writes the shares and fixed times that `roofline` takes for every GPU (`ceilings.json`). Each class
of kernels is fitted on the points of its part of a measured profile; the time of a step that no
part has is fitted on the profile's own whole steps. No held-out step is looked at.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
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
from hybridsim.cost.roofline import RooflineCost
from hybridsim.cost.work import Work
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec, get_model
from hybridsim.models.recurrent import RecurrentSpec, recurrent

FORMAT = "hybridsim-ceilings-1"
BASE = ("h200", "qwen3.5-0.8b", 1)
# No profile of a single GPU has these: a ring's share of the link, an all-reduce's latency.
ASSUMED = {"link": 0.7, "allreduce_latency_s": 8e-6}
# Kernels measured one by one (results/kernels), at sizes where fixed times are small.
_SCAN_TOKENS, _CONV_TOKENS = 8192, 16384
_SCANS = {"kda": "kda", "mamba2": "ssd", "lightning": "linear"}  # kind of layer -> kernel
_NUM_HEADS, _HEAD_DIM = 16, 128

At = tuple[int, ...]
Rows = Sequence[Mapping[str, Any]]


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
    "full_decode": _decode_at,
}


def fit_part(
    name: str, data: Mapping[str, Any], model: ModelSpec, gpu: Gpu, memory: float | None = None
) -> LargerOfTwo:
    """Coefficients (1 / share) of one part of a profile.

    No share may pass what a plain matrix product or copy attained in the same run.
    """
    points, counts = data["operators"][name]["points"], count_step(model)
    if name == "copy":
        works = [[count.copy_work(point["at"][0] * model.state_bytes)] for point in points]
    else:
        works = [WORK_AT[name](counts, tuple(point["at"])) for point in points]
    terms = np.array([_terms(work, gpu) for work in works])
    seconds = np.array([point["median_s"] for point in points])
    compute = gpu.flops_per_s / data["floors"]["matmul_flops_per_s"]
    streams = gpu.hbm_bytes_per_s / data["floors"]["copy_bytes_per_s"]
    return fit_larger_of_two(terms, seconds, (compute, streams, streams, 0.0), memory)


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
    head = fit_part("head", data, model, gpu)
    # Dense layers stream their weights as the head does, the one product that is measured alone;
    # what few tokens take beyond that are the launches and drains of each layer.
    dense = fit_part("dense", data, model, gpu, memory=head.memory)
    prefill = fit_part("full_prefill", data, model, gpu)
    scan = fit_part("recurrent_prefill", data, model, gpu)
    return {
        classes.MATMUL: _ceiling(dense),
        classes.POINTWISE: _ceiling(dense) | {"memory": 1 / dense.extra, "fixed_s": 0.0},
        classes.HEAD: _ceiling(head),
        classes.EXPERTS: _ceiling(dense),
        classes.ATTENTION_PREFILL: _ceiling(prefill),
        classes.ATTENTION_DECODE: _ceiling(fit_part("full_decode", data, model, gpu), prefill),
        classes.SCAN_PREFILL: _ceiling(scan),
        classes.SCAN_DECODE: _ceiling(fit_part("recurrent_decode", data, model, gpu), scan),
        classes.COPY: _ceiling(fit_part("copy", data, model, gpu), dense),
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


def _row(rows: Rows, op: str, **at: int) -> Mapping[str, Any]:
    """One row of the kernels' table."""
    for row in rows:
        if row["op"] == op and all(row.get(key) == value for key, value in at.items()):
            return row
    raise UserError("--kernels", f"has no row {op!r} with {at}; allowed: a table that has it")


def _seconds(rows: Rows, op: str, **at: int) -> float:
    return float(_row(rows, op, **at)["ours"]["median_s"])


def fit_relative(rows: Rows) -> dict[str, dict[str, float]]:
    """Rates of kinds of layers that the profiled model has not, as multiples of its own kinds'.

    From kernels timed side by side: FLOPs a second of the chunked scans, each with the convolution
    that comes before it, and the share of its floor that latent attention reaches at decode.
    """
    conv_s = _seconds(rows, "conv prefill", tokens=_CONV_TOKENS) * _SCAN_TOKENS / _CONV_TOKENS
    base = _scan_rate(rows, "gated_deltanet", "gated_delta", conv_s)
    scans = {
        kind: _scan_rate(rows, kind, name, 0.0 if kind == "lightning" else conv_s) / base
        for kind, name in _SCANS.items()
    }
    latent, plain = (
        float(_row(rows, f"decode attention {kind}", batch=32, context=16384)["share_of_floor"])
        for kind in ("mla", "d256")
    )
    return {classes.SCAN_PREFILL: scans, classes.ATTENTION_DECODE: {"mla": latent / plain}}


def _scan_rate(rows: Rows, kind: str, name: str, conv_s: float) -> float:
    """FLOPs a second of a chunked scan; conv_s: of the convolution of as many tokens."""
    seconds = _seconds(rows, f"prefill {name}", tokens=_SCAN_TOKENS) + conv_s
    layer: RecurrentSpec = recurrent(kind, _NUM_HEADS, _NUM_HEADS, _HEAD_DIM, _HEAD_DIM)
    return layer.prefill_flops(_SCAN_TOKENS) / seconds


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
