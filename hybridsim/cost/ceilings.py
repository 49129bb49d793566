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
from hybridsim.cost.file_shapes import read_kernels
from hybridsim.cost.fitting import Step, chunks_of
from hybridsim.cost.gpus import GPUS, Gpu
from hybridsim.cost.profiled import Bench, ClassFit, Source, shipped_sources
from hybridsim.cost.relative import Rows, fit_relative
from hybridsim.cost.roofline import RooflineCost
from hybridsim.files import write_whole
from hybridsim.terminal import errors_in_one_line

FORMAT = "hybridsim-ceilings-1"
CARD = "h200"
KERNELS = Path("results/kernels/h200.json")
# No profile of a single GPU has these: a ring's share of the link, an all-reduce's latency.
ASSUMED = {"link": 0.7, "allreduce_latency_s": 8e-6}
# Parts of a profile that are fitted together, and kinds of layers that have kernels of their own.
_MIXERS = {
    ("full_prefill", "full_prefill_of_4"): ("gqa", "mla"),
    ("full_decode",): ("gqa", "mla"),
    ("recurrent_prefill",): ("gated_deltanet", "kda"),
    ("recurrent_decode",): ("gated_deltanet", "kda"),
}
# Bound by memory at all points: the compute share of these stands in.
_COMPUTE_LIKE = {
    classes.ATTENTION_DECODE: classes.ATTENTION_PREFILL,
    classes.SCAN_DECODE: classes.SCAN_PREFILL,
    classes.COPY: classes.MATMUL,
    classes.POINTWISE: classes.MATMUL,
}
Values = dict[str, float]


def fit_classes(bench: Bench) -> tuple[dict[str, Values], dict[str, dict[str, Values]]]:
    """Shares, fixed times and errors of every class, and of kinds of layers beside the first."""
    head = bench.fit("head")
    # Dense layers stream their weights as the head does, the one product that is measured alone;
    # what few tokens take beyond that are the launches and drains of each layer.
    weights = {classes.MATMUL: head[classes.HEAD].memory}
    usual = head | bench.fit("dense", memory=weights) | bench.fit("copy")
    # Where no profile has experts, their products are taken to attain what others do.
    usual[classes.EXPERTS] = usual[classes.MATMUL]
    if bench.has(["experts"]):
        usual |= bench.fit("experts")
    others: dict[str, dict[str, ClassFit]] = {}
    for names, known in _MIXERS.items():
        first, *more = [kind for kind in known if bench.has(names, kind)]
        usual |= bench.fit(*names, kind=first)
        for kind in more:
            for part, fit in bench.fit(*names, kind=kind).items():
                others.setdefault(part, {})[kind] = fit
    found = {part: _values(part, usual) for part in classes.CLASSES}
    kinds = {
        part: {kind: _values(part, usual | {part: fit}) for kind, fit in fits.items()}
        for part, fits in others.items()
    }
    return found, kinds


def _values(part: str, fits: Mapping[str, ClassFit]) -> Values:
    """Of one class; where memory bounds all its points, another's compute share stands in."""
    fit = fits[part]
    compute = fit if fit.is_bound else fits[_COMPUTE_LIKE.get(part, part)]
    return {
        "compute": 1 / compute.compute,
        "memory": 1 / fit.memory,
        "fixed_s": fit.fixed_s,
        "error": fit.error,
    }


def fit_overhead(bench: Bench, rest: Efficiency) -> float:
    """Seconds of a step beyond its parts: least squares of relative errors on the fit's steps."""
    pairs = [
        (step["median_s"], seconds)
        for source in bench.sources
        for step, seconds in predictions(bench.gpu, source, rest)
    ]
    measured, parts = np.array(pairs).T
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
    found_classes, kinds = fit_classes(bench)
    found: dict[str, Any] = {
        "format": FORMAT,
        "gpu": bench.gpu.name,
        "profiles": [
            {key: source.data[key] for key in ("model", "tp", "machine")}
            for source in bench.sources
        ],
        "floors": {key: bench.best(key) for key in ("copy_bytes_per_s", "matmul_flops_per_s")},
        "classes": found_classes,
        "kinds": kinds,
        "relative": _without(fit_relative(rows), kinds),
        "step_overhead_s": 0.0,
        "assumed": ASSUMED,
    }
    found["step_overhead_s"] = fit_overhead(bench, parse_efficiency(found))
    return {key: _rounded(value) for key, value in found.items()}


def _without(
    relative: Mapping[str, Mapping[str, float]], kinds: Mapping[str, Mapping[str, Values]]
) -> dict[str, dict[str, float]]:
    """The kinds that no profile has; of others the measured ceilings are better."""
    rest = {
        part: {kind: x for kind, x in factors.items() if kind not in kinds.get(part, {})}
        for part, factors in relative.items()
    }
    return {part: factors for part, factors in rest.items() if factors}


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
    bench = Bench(GPUS[CARD], list(shipped_sources(CARD).values()))
    with errors_in_one_line():
        found = fit_ceilings(bench, read_kernels(options.kernels, "--kernels"))
        write_whole(options.out, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
