"""`python -m hybridsim.cost.ceilings`: what kernels attain of the peak rates, fitted on profiles.

Writes the shares and fixed times that `roofline` takes for every GPU (`ceilings.json`). Each class
of kernels is fitted on the points of its parts in the measured profiles of one card; the time of a
step that no part has is fitted on the profiles' own whole steps. No held-out step is looked at.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hybridsim.cost import efficiency as classes
from hybridsim.cost.efficiency import Efficiency, parse_efficiency
from hybridsim.cost.fitting import Step, chunks_of
from hybridsim.cost.gpus import GPUS, Gpu
from hybridsim.cost.least_squares import LargerOfTwo
from hybridsim.cost.profiled import Bench, Source, shipped_sources
from hybridsim.cost.relative import Rows, fit_relative
from hybridsim.cost.roofline import RooflineCost

FORMAT = "hybridsim-ceilings-1"
CARD = "h200"
KERNELS = Path("results/kernels/h200.json")
# No profile of a single GPU has these: a ring's share of the link, an all-reduce's latency.
ASSUMED = {"link": 0.7, "allreduce_latency_s": 8e-6}
# Parts of a profile that a class of kernels is fitted on, the kind of layers that it is named for,
# and the kinds that are a multiple of it.
_PARTS = {
    classes.ATTENTION_PREFILL: ("full_prefill", "full_prefill_of_4"),
    classes.ATTENTION_DECODE: ("full_decode",),
    classes.SCAN_PREFILL: ("recurrent_prefill",),
    classes.SCAN_DECODE: ("recurrent_decode",),
}
_USUAL = {name: "gqa" if "attention" in name else "gated_deltanet" for name in _PARTS}
_OTHERS = {name: ("mla",) if "attention" in name else ("kda",) for name in _PARTS}


def fit_classes(bench: Bench, relative: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Shares, fixed times and errors of every class of kernels.

    Kinds of layers that profiles have besides the usual ones replace their rates in `relative`.
    """
    head = bench.fit("head")
    # Dense layers stream their weights as the head does, the one product that is measured alone;
    # what few tokens take beyond that are the launches and drains of each layer.
    dense = bench.fit("dense", memory=head.memory)
    with_experts = any("experts" in source.data["operators"] for source in bench.sources)
    mixers = {name: bench.fit(*_PARTS[name], kind=_USUAL[name]) for name in _PARTS}
    for name, kinds in _OTHERS.items():
        for kind in kinds:
            factor = bench.factor(mixers[name], kind, *_PARTS[name])
            if factor is not None:
                relative.setdefault(name, {})[kind] = factor
    attention, scan = mixers[classes.ATTENTION_PREFILL], mixers[classes.SCAN_PREFILL]
    return {
        classes.MATMUL: _ceiling(dense),
        classes.POINTWISE: _ceiling(dense) | {"memory": 1 / dense.extra, "fixed_s": 0.0},
        classes.HEAD: _ceiling(head),
        # Where no profile has experts, their products are taken to attain what others do.
        classes.EXPERTS: _ceiling(bench.fit("experts") if with_experts else dense),
        classes.ATTENTION_PREFILL: _ceiling(attention),
        classes.ATTENTION_DECODE: _ceiling(mixers[classes.ATTENTION_DECODE], attention),
        classes.SCAN_PREFILL: _ceiling(scan),
        classes.SCAN_DECODE: _ceiling(mixers[classes.SCAN_DECODE], scan),
        classes.COPY: _ceiling(bench.fit("copy"), dense),
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


def fit_overhead(bench: Bench, rest: Efficiency) -> float:
    """Seconds of a step beyond its parts: least squares of relative errors on the fit's steps."""
    short = np.concatenate([
        [(step["median_s"], seconds) for step, seconds in predictions(bench.gpu, source, rest)]
        for source in bench.sources
    ])  # fmt: skip
    measured, parts = short.T
    return max(0.0, float(np.sum((1 - parts / measured) / measured) / np.sum(measured**-2.0)))


def predictions(
    gpu: Gpu, source: Source, efficiency: Efficiency, steps: Sequence[Step] | None = None
) -> Iterator[tuple[Step, float]]:
    """Steps (the profile's own, if none are given) and the roofline's seconds of them.

    As measured: of one rank, without all-reduces.
    """
    cost = RooflineCost(source.model, gpu, efficiency)
    for step in source.data["fit_steps"] if steps is None else steps:
        parts = cost.parts_s(chunks_of(step), step["num_decodes"], step["decode_context_tokens"])
        parts.pop("allreduce", None)
        yield step, sum(parts.values())


def fit_ceilings(bench: Bench, rows: Rows) -> dict[str, Any]:
    """The ceilings file, from profiles and the kernels' table of the same card."""
    relative = fit_relative(rows)
    found: dict[str, Any] = {
        "format": FORMAT,
        "gpu": bench.gpu.name,
        "profiles": [
            {key: source.data[key] for key in ("model", "tp", "machine")}
            for source in bench.sources
        ],
        "floors": {key: bench.best(key) for key in ("copy_bytes_per_s", "matmul_flops_per_s")},
        "classes": fit_classes(bench, relative),
        "relative": relative,
        "step_overhead_s": 0.0,
        "assumed": ASSUMED,
    }
    found["step_overhead_s"] = fit_overhead(bench, parse_efficiency(found))
    return {key: _rounded(value) for key, value in found.items()}


def _rounded(value: Any) -> Any:
    """To six digits, so that another machine's last bits do not show."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return value


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.cost.ceilings", description=__doc__)
    parser.add_argument("--kernels", type=Path, default=KERNELS, help="table of single kernels")
    parser.add_argument("--out", type=Path, default=classes.SHIPPED, help="file to write")
    options = parser.parse_args()
    rows = json.loads(options.kernels.read_text())["rows"]
    bench = Bench(GPUS[CARD], list(shipped_sources(CARD).values()))
    options.out.write_text(json.dumps(fit_ceilings(bench, rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
