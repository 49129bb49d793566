"""The calibration program: measures a profile part by part and writes it as it goes."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hybridsim.errors import UserError, unknown_name
from hybridsim.kernels.bench.floors import measure_floors
from hybridsim.kernels.bench.timing import time_eager, time_graph
from hybridsim.kernels.calibrate.clock import time_calls
from hybridsim.kernels.calibrate.grids import AXES, points
from hybridsim.kernels.calibrate.parts import PARTS, TIMED_LAYERS, parts_of
from hybridsim.kernels.calibrate.resume import Profile, load_held_out, load_or_start
from hybridsim.kernels.calibrate.steps import (
    SUSTAINED,
    draw_steps,
    step_record,
    sustained_record,
    time_step,
)
from hybridsim.kernels.console import say
from hybridsim.kernels.machine import check_out, describe_machine, require_gpu, save_json
from hybridsim.kernels.model.batch import StepShape
from hybridsim.kernels.model.model import HybridModel, check_model, timed_shapes
from hybridsim.models import CATALOGUE, ModelSpec

NUM_SLOTS = 560
# Of all requests together; where a batch has more, pages are used twice. Several GB a layer, so
# that they come from memory all the same.
POOL_TOKENS = 2**20
# The second was never drawn before the profiles that ship were final, but for Kimi Linear's, whose
# held-out steps are those of 20261201.
FIT_SEED, HELD_OUT_SEED = 1, 20261202
_SAVE_EVERY_S = 10.0


def measure_launch() -> dict[str, float]:
    """Seconds between the starts of tiny kernels: in a graph, and launched from Python."""
    x = torch.ones(1, device="cuda")
    calls = [lambda: x.add_(1)] * 200
    return {
        "graph_kernel_s": time_graph(calls).median_s,
        "eager_kernel_s": time_eager(calls).median_s,
    }


def describe_model(model: HybridModel) -> dict[str, Any]:
    """What a cost model must know of the measured rank besides its times."""
    return {
        "state_bytes": model.spec.state_bytes,
        "measured_layers": {
            "each_kind": TIMED_LAYERS,
            "distinct_expert_layers": len(model.expert_weights),
            "expert_layers": len(model.expert_layers),
        },
    }


class Measurement:
    """One run of the program, its code of `commit`: fills in what the profile at `path` lacks."""

    def __init__(self, path: Path, profile: Profile, spec: ModelSpec, commit: str) -> None:
        self.path, self.profile, self.commit = path, profile, commit
        self.model = HybridModel(spec, NUM_SLOTS, POOL_TOKENS // 16)
        self.start_s = self.saved_s = time.monotonic()

    def save(self, is_due: bool = True) -> None:
        """Write the profile: at once, or if the last time is long ago."""
        if is_due or time.monotonic() - self.saved_s > _SAVE_EVERY_S:
            save_json(self.path, self.profile, indent=None)
            self.saved_s = time.monotonic()

    def report(self, what: str, count: int) -> None:
        say(f"{what}: {count}, {time.monotonic() - self.start_s:.0f} s")

    def machine(self) -> None:
        """Ceilings of the card and facts of the model."""
        if "floors" not in self.profile:
            self.profile["floors"] = asdict(measure_floors())
            self.profile["launch"] = measure_launch()
        self.profile.update(describe_model(self.model))

    def part(self, name: str, thin: int) -> None:
        """The points of one part that the profile lacks."""
        table = self.table(name, points(name, thin))
        done = {tuple(point["at"]) for point in table["points"]}
        for at in points(name, thin):
            if at not in done:
                part = PARTS[name](self.model, at)
                timing = time_calls(part.calls, part.factor)
                table["points"].append({"at": list(at), **asdict(timing)})
                self.save(is_due=False)
        torch.cuda.empty_cache()
        self.save()
        self.report(name, len(table["points"]))

    def table(self, name: str, wanted: Sequence[tuple[int, ...]]) -> dict[str, Any]:
        """A part of the profile, begun anew if this code is not the one that left it unfinished.

        A profile may be completed by later code, but the points of a part are of one commit.
        """
        operators = self.profile["operators"]
        found = operators.get(name, {"points": []})
        lacks = set(wanted) - {tuple(point["at"]) for point in found["points"]}
        if lacks and found.get("commit") != self.commit:
            found = {"axes": list(AXES[name]), "commit": self.commit, "points": []}
        operators[name] = found
        return found

    def sustained(self) -> None:
        """What steps that go on without rest take, where the profile does not say."""
        if "sustained" not in self.profile:
            self.profile["sustained"] = [sustained_record(self.model, x) for x in SUSTAINED]
            torch.cuda.empty_cache()
        self.save()
        self.report("sustained steps", len(SUSTAINED))

    def steps(self, what: str, steps: list[Any], shapes: Sequence[StepShape]) -> None:
        """Whole steps of these shapes, as far as `steps` has not got."""
        for index in range(len(steps), len(shapes)):
            timing = time_step(self.model, shapes[index], seed=index)
            steps.append(step_record(shapes[index], timing))
            self.save(is_due=False)
            if index % 32 == 0:
                torch.cuda.empty_cache()
        self.save()
        self.report(what, len(steps))


def measurable(name: str) -> ModelSpec:
    """The catalogue's model of this name; UserError where it is none, or has no step here."""
    models = timed_shapes(list(CATALOGUE), lambda name: CATALOGUE[name]())
    if name not in CATALOGUE:
        raise unknown_name("--model", name, models)
    spec = CATALOGUE[name]()
    try:
        check_model(spec)
    except ValueError as error:
        raise UserError(
            "--model",
            f"{name} is in the catalogue but cannot be measured: {error}; "
            f"allowed: {', '.join(models)}",
        ) from None
    return spec


def check_options(options: argparse.Namespace) -> None:
    """UserError for options of held-out steps that do not go together, or files not to write."""
    paths = [options.out]
    if options.held_out and options.held_out_out is None:
        raise UserError("--held-out-out", f"is missing; needed for --held-out {options.held_out}")
    if options.held_out_out is not None:
        if not options.held_out:
            raise UserError("--held-out", "is 0 beside --held-out-out; allowed: 1 or more")
        paths.append(options.held_out_out)
        if paths[0].resolve() == paths[1].resolve():
            raise UserError(
                "--held-out-out", f"is --out itself, {str(paths[0])!r}; allowed: another"
            )
    for path in paths:
        check_out(path)


def run(options: argparse.Namespace) -> None:
    """Measure as the options say.

    UserError for a model without a step, a tp that does not divide it, a machine without a GPU or
    with too small a one, or files that cannot be written or gone on from.
    """
    try:
        measure(options)
    except torch.cuda.OutOfMemoryError:
        raise UserError(
            "gpu",
            f"its memory is too small for {options.model} with tp {options.tp}; "
            "allowed: more ranks (--tp) or a smaller model",
        ) from None


def measure(options: argparse.Namespace) -> None:
    """See `run`."""
    spec = measurable(options.model).for_rank(options.tp)
    require_gpu()
    check_options(options)
    machine = describe_machine(options.commit)
    fit_shapes = draw_steps(options.fit_steps, FIT_SEED)
    held_out_shapes = draw_steps(options.held_out, HELD_OUT_SEED)
    profile = load_or_start(options.out, options.model, options.tp, machine, fit_shapes)
    held_out: Profile | None = None
    if options.held_out_out is not None:
        held_out = load_held_out(options.held_out_out, profile, held_out_shapes)
    measurement = Measurement(options.out, profile, spec, machine["commit"])
    measurement.machine()
    for name in parts_of(measurement.model):
        measurement.part(name, options.thin)
    measurement.sustained()
    measurement.steps("fit steps", profile["fit_steps"], fit_shapes)
    if held_out is not None:
        measurement.path, measurement.profile = options.held_out_out, held_out
        measurement.steps("held-out steps", held_out["steps"], held_out_shapes)
