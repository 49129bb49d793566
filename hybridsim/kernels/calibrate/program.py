"""The calibration program: measures a profile part by part and writes it as it goes."""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hybridsim.errors import UserError, unknown_name
from hybridsim.files import read_whole
from hybridsim.kernels.bench.floors import measure_floors
from hybridsim.kernels.bench.timing import time_eager, time_graph
from hybridsim.kernels.calibrate.clock import time_calls
from hybridsim.kernels.calibrate.grids import AXES, points
from hybridsim.kernels.calibrate.parts import PARTS, TIMED_LAYERS, parts_of
from hybridsim.kernels.calibrate.steps import (
    SUSTAINED,
    draw_step,
    step_record,
    sustained_record,
    time_step,
)
from hybridsim.kernels.console import say
from hybridsim.kernels.machine import describe_machine, save_json
from hybridsim.kernels.model.model import HybridModel, check_model, timed_shapes
from hybridsim.models import CATALOGUE, ModelSpec

FORMAT = "hybridsim-profile-1"
NUM_SLOTS = 560
# Of all requests together; where a batch has more, pages are used twice. Several GB a layer, so
# that they come from memory all the same.
POOL_TOKENS = 2**20
# The second was never drawn before the profiles that ship were final.
FIT_SEED, HELD_OUT_SEED = 1, 20261202
_SAVE_EVERY_S = 10.0

Profile = dict[str, Any]


def check_folder(path: Path) -> None:
    """UserError now, not after minutes of measuring, where a file cannot be written."""
    if path.is_dir() or not os.access(path.parent, os.W_OK | os.X_OK):
        raise UserError(str(path), "cannot be written; allowed: a file in a folder of yours")


def read_json(path: Path, keys: Sequence[str]) -> Profile:
    """What an earlier start has written; UserError for a file that this program did not write."""
    try:
        found = json.loads(read_whole(path))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(key in found for key in keys):
        allowed = "a file that this program has written, or a new one"
        raise UserError(str(path), f"is no mapping with {', '.join(keys)}; allowed: {allowed}")
    return found


def load_or_start(path: Path, model: str, tp: int, commit: str) -> Profile:
    """The profile so far, if it is of this model, rank and card, else an empty one."""
    machine = describe_machine(commit)
    if path.exists():
        profile = read_json(path, ("model", "tp", "machine", "operators", "fit_steps"))
        same = profile["model"] == model and profile["tp"] == tp
        if same and profile["machine"]["gpu"] == machine["gpu"]:
            return profile
        raise UserError(
            str(path),
            f"is of {profile['model']} with tp {profile['tp']} on {profile['machine']['gpu']}; "
            f"allowed: one of {model} with tp {tp} on {machine['gpu']}, or a new file",
        )
    return {"format": FORMAT, "model": model, "tp": tp, "machine": machine, "operators": {},
            "fit_steps": []}  # fmt: skip


def measure_launch() -> dict[str, float]:
    """Seconds between the starts of tiny kernels: in a graph, and launched from Python."""
    x = torch.ones(1, device="cuda")
    calls = [lambda: x.add_(1)] * 200
    return {
        "graph_kernel_s": time_graph(calls).median_s,
        "eager_kernel_s": time_eager(calls).median_s,
    }


def describe_model(model: HybridModel) -> Profile:
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
    """One run of the program: fills in what the profile at `path` lacks."""

    def __init__(self, path: Path, profile: Profile, spec: ModelSpec, commit: str) -> None:
        self.path, self.profile = path, profile
        self.commit = describe_machine(commit)["commit"]
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
        # Each part names its commit: a profile may be completed by later code.
        empty = {"axes": list(AXES[name]), "commit": self.commit, "points": []}
        table = self.profile["operators"].setdefault(name, empty)
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

    def sustained(self) -> None:
        """What steps that go on without rest take, where the profile does not say."""
        if "sustained" not in self.profile:
            self.profile["sustained"] = [sustained_record(self.model, x) for x in SUSTAINED]
            torch.cuda.empty_cache()
        self.save()
        self.report("sustained steps", len(SUSTAINED))

    def steps(self, what: str, steps: list[Any], count: int, seed: int) -> None:
        """Random whole steps, until there are `count`."""
        rng = np.random.default_rng(seed)
        shapes = [draw_step(rng) for _ in range(count)]
        for index in range(len(steps), count):
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


def run(options: argparse.Namespace) -> None:
    """Measure as the options say.

    UserError for a model without a step, a tp that does not divide it, or a machine without a GPU.
    """
    spec = measurable(options.model).for_rank(options.tp)
    if not torch.cuda.is_available():
        raise UserError("gpu", "torch finds no CUDA GPU; calibration measures the one it runs on")
    for path in filter(None, (options.out, options.held_out_out)):
        check_folder(path)
    profile = load_or_start(options.out, options.model, options.tp, options.commit)
    held_out: Profile | None = None
    if options.held_out and options.held_out_out is not None:
        held_out = load_held_out(options.held_out_out, profile)
    measurement = Measurement(options.out, profile, spec, options.commit)
    measurement.machine()
    for name in parts_of(measurement.model):
        measurement.part(name, options.thin)
    measurement.sustained()
    measurement.steps("fit steps", profile["fit_steps"], options.fit_steps, FIT_SEED)
    if held_out is not None:
        measurement.path, measurement.profile = options.held_out_out, held_out
        measurement.steps("held-out steps", held_out["steps"], options.held_out, HELD_OUT_SEED)


def load_held_out(path: Path, profile: Profile) -> Profile:
    """The held-out steps so far, if they are of this profile, else none."""
    head = {key: profile[key] for key in ("machine", "model", "tp")}
    if path.exists():
        found = read_json(path, ("model", "tp", "machine", "steps"))
        if {key: found.get(key) for key in head} == head:
            return found
    return {**head, "steps": []}
