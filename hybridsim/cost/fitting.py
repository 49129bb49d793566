"""`python -m hybridsim.cost.fitting PROFILE --held-out STEPS --out DIR`: fit a profile, judge it.

The fit uses the whole steps in the profile itself; the held-out steps are only compared with.
"""

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.measured import Fit, MeasuredCost, parse_profile

Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Relative errors (predicted / measured - 1) over steps."""

    num_steps: int
    median_absolute: float
    p95_absolute: float
    bias: float
    largest: float


def chunks_of(step: Step) -> list[PrefillChunk]:
    """The prefill chunks of a measured step."""
    return [PrefillChunk(new, prefix) for new, prefix in step["chunks"]]


def predict(cost: MeasuredCost, steps: Sequence[Step]) -> np.ndarray:
    """Predicted seconds of each step, `[len(steps)]` float64."""
    return np.array([
        cost.step_s(chunks_of(step), step["num_decodes"], step["decode_context_tokens"])
        for step in steps
    ])  # fmt: skip


def judge(predicted: np.ndarray, measured: np.ndarray) -> Judgement:
    """Errors of predictions against measurements, both `[steps]`."""
    error = predicted / measured - 1
    size = np.abs(error)
    return Judgement(
        len(error), float(np.median(size)), float(np.quantile(size, 0.95)),
        float(error.mean()), float(size.max()),
    )  # fmt: skip


def fit(data: Mapping[str, Any], place: str = "profile") -> Fit:
    """overhead_s and scale that make the relative errors of the profile's own steps least.

    Least squares of (overhead_s + scale * parts) / measured - 1.
    """
    steps = data["fit_steps"]
    plain = replace(parse_profile(data, place), fit=Fit())
    measured = np.array([step["median_s"] for step in steps])
    parts = predict(MeasuredCost(plain), steps)
    terms = np.stack([1 / measured, parts / measured], axis=1)
    (overhead_s, scale), *_ = np.linalg.lstsq(terms, np.ones(len(steps)), rcond=None)
    rest = terms @ np.array([overhead_s, scale]) - 1
    return Fit(float(overhead_s), float(scale), float(np.sqrt(np.mean(rest**2))))


def write_table(path: Path, steps: Sequence[Step], predicted: np.ndarray) -> None:
    """One row a step: what it does, measured and predicted seconds, relative error."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([
            "num_chunks", "num_prefill_tokens", "num_prefix_tokens", "num_decodes",
            "decode_context_tokens", "measured_s", "predicted_s", "error",
        ])  # fmt: skip
        for step, seconds in zip(steps, predicted, strict=True):
            chunks = step["chunks"]
            rows.writerow([
                len(chunks), sum(new for new, _ in chunks), sum(old for _, old in chunks),
                step["num_decodes"], step["decode_context_tokens"], f"{step['median_s']:.6e}",
                f"{seconds:.6e}", f"{seconds / step['median_s'] - 1:.4f}",
            ])  # fmt: skip


def draw(path: Path, measured: np.ndarray, predicted: np.ndarray, title: str) -> None:
    """Predicted against measured milliseconds, and the relative error below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 7), layout="constrained")
    above, below = figure.subplots(2, 1, height_ratios=[3, 1.3], sharex=True)
    limits = [measured.min() * 900, measured.max() * 1100]
    above.loglog(limits, limits, color="0.6", linewidth=1)
    above.loglog(measured * 1e3, predicted * 1e3, ".", markersize=5)
    above.set(ylabel="predicted step (ms)", title=title)
    below.axhspan(-3, 3, color="0.9")
    below.semilogx(measured * 1e3, (predicted / measured - 1) * 100, ".", markersize=5)
    below.set(xlabel="measured step (ms)", ylabel="error (%)")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.cost.fitting", description=__doc__)
    parser.add_argument("profile", type=Path, help="profile to fit; the fit is written into it")
    parser.add_argument("--held-out", type=Path, required=True, help="steps to compare with")
    parser.add_argument("--out", type=Path, required=True, help="folder for table and figure")
    options = parser.parse_args()
    data = json.loads(options.profile.read_text())
    data["fit"] = asdict(fit(data, options.profile.name))
    options.profile.write_text(json.dumps(data, separators=(",", ":")) + "\n")
    cost = MeasuredCost(parse_profile(data, options.profile.name))
    steps = json.loads(options.held_out.read_text())["steps"]
    predicted = predict(cost, steps)
    measured = np.array([step["median_s"] for step in steps])
    result = judge(predicted, measured)
    options.out.mkdir(parents=True, exist_ok=True)
    write_table(options.out / "held_out.csv", steps, predicted)
    title = f"{data['model']} on {data['machine']['gpu']}: {result.num_steps} held-out steps"
    draw(options.out / "held_out.png", measured, predicted, title)
    summary = {"fit": data["fit"], "held_out": asdict(result), "notes": cost.notes()}
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
