"""`python -m hybridsim.cost.fitting`: fit profiles to whole steps and judge them by others.

The fit uses the whole steps in the profile itself; the held-out steps are only compared with.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.file_shapes import read_steps
from hybridsim.cost.measured import Fit, MeasuredCost, parse_profile, profile_object
from hybridsim.cost.profiles import shipped_profiles
from hybridsim.errors import UserError
from hybridsim.files import write_csv, write_whole, written_whole
from hybridsim.terminal import errors_in_one_line

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


def measured_s(steps: Sequence[Step]) -> np.ndarray:
    """Measured seconds of each step, `[len(steps)]` float64."""
    return np.array([step["median_s"] for step in steps], dtype=float)


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

    Least squares of (overhead_s + scale * parts) / measured - 1. UserError below two steps.
    """
    plain = replace(parse_profile(data, place), fit=Fit())
    steps = data.get("fit_steps", ())
    if len(steps) < 2:
        raise UserError(f"{place}.fit_steps", f"{len(steps)} whole steps; allowed: two or more")
    measured = measured_s(steps)
    parts = predict(MeasuredCost(plain), steps)
    terms = np.stack([1 / measured, parts / measured], axis=1)
    (overhead_s, scale), *_ = np.linalg.lstsq(terms, np.ones(len(steps)), rcond=None)
    rest = terms @ np.array([overhead_s, scale]) - 1
    return Fit(float(overhead_s), float(scale), float(np.sqrt(np.mean(rest**2))))


def step_rows(steps: Sequence[Step], predicted: np.ndarray) -> Iterator[Sequence[object]]:
    """Heads, then a row a step: what it does, measured and predicted seconds, relative error."""
    yield (
        "num_chunks", "num_prefill_tokens", "num_prefix_tokens", "num_decodes",
        "decode_context_tokens", "measured_s", "predicted_s", "error",
    )  # fmt: skip
    for step, seconds in zip(steps, predicted, strict=True):
        chunks = step["chunks"]
        yield (
            len(chunks), sum(new for new, _ in chunks), sum(old for _, old in chunks),
            step["num_decodes"], step["decode_context_tokens"], f"{step['median_s']:.6e}",
            f"{seconds:.6e}", f"{seconds / step['median_s'] - 1:.4f}",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """A profile's held-out steps: seconds measured and predicted `[steps]`, and their errors."""

    name: str
    title: str
    measured: np.ndarray
    predicted: np.ndarray
    result: Judgement
    fit: Fit
    notes: list[str]


def draw(path: Path, profiles: Sequence[Judged]) -> None:
    """For each profile predicted against measured milliseconds, and the relative error below."""
    from hybridsim.cost.step_figure import StepColumn, figure_of  # matplotlib is slow to load

    columns = [
        StepColumn(each.title, each.measured, {"measured model": each.predicted})
        for each in profiles
    ]
    with written_whole(path) as beside:
        figure_of(columns).savefig(beside, format="png")


def fit_and_judge(path: Path, folder: Path) -> Judged:
    """Write the fit into the profile at `path` and the table of its held-out steps into `folder`.

    The steps are read from `folder/<profile's name>.steps.json`, before anything is written.
    """
    data = profile_object(path)
    data["fit"] = asdict(fit({**data, "fit": {}}, path.name))
    profile = parse_profile(data, path.name)
    steps = read_steps(folder / f"{path.stem}.steps.json", profile.model, profile.tp)
    cost = MeasuredCost(profile)
    predicted, measured = predict(cost, steps), measured_s(steps)
    write_whole(path, (json.dumps(data, separators=(",", ":")) + "\n").encode())
    write_csv(folder / f"{path.stem}.csv", step_rows(steps, predicted))
    rank = "" if profile.tp == 1 else f", one rank of {profile.tp}"
    title = f"{profile.model}{rank}\n{profile.machine.get('gpu')}, {len(steps)} held-out steps"
    result = judge(predicted, measured)
    return Judged(path.stem, title, measured, predicted, result, profile.fit, cost.notes())


def fit_all(paths: Sequence[Path], folder: Path) -> None:
    """Fit and judge all profiles, then draw and sum up what was found in `folder`."""
    judged = [fit_and_judge(path, folder) for path in paths]
    draw(folder / "held_out.png", judged)
    summary = {
        each.name: {"fit": asdict(each.fit), "held_out": asdict(each.result), "notes": each.notes}
        for each in judged
    }
    write_whole(folder / "summary.json", (json.dumps(summary, indent=1) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.cost.fitting", description=__doc__)
    parser.add_argument(
        "profiles", type=Path, nargs="*", help="profiles to fit (default: those that ship)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results/calibration"),
        help="folder with <profile>.steps.json, for tables and figure",
    )  # fmt: skip
    options = parser.parse_args()
    with errors_in_one_line():
        fit_all(options.profiles or list(shipped_profiles().values()), options.out)


if __name__ == "__main__":
    main()
