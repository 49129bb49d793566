"""`python -m hybridsim.kernels.calibrate --model qwen3.5-0.8b --out profile.json`

Measures a profile; run again after an interruption and it goes on where it stopped. With
`--held-out N --held-out-out FILE` it also times N random mixed steps that no fit may see.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hybridsim.kernels.attention import query_block
from hybridsim.kernels.bench.floors import measure_floors
from hybridsim.kernels.bench.timing import time_eager, time_graph
from hybridsim.kernels.calibrate.grids import AXES, GRIDS
from hybridsim.kernels.calibrate.parts import PARTS
from hybridsim.kernels.calibrate.steps import draw_step, step_record, time_step
from hybridsim.kernels.launch import num_multiprocessors
from hybridsim.kernels.machine import describe_machine
from hybridsim.kernels.model.model import HybridModel
from hybridsim.kernels.model.shapes import SHAPES

FORMAT = "hybridsim-profile-1"
NUM_SLOTS = 560
FIT_SEED, HELD_OUT_SEED = 1, 2


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def load_or_start(path: Path, model: str, commit: str) -> dict[str, Any]:
    """The profile so far, if it is of this model and card, else an empty one."""
    machine = describe_machine(commit)
    if path.exists():
        profile: dict[str, Any] = json.loads(path.read_text())
        if profile["model"] == model and profile["machine"]["gpu"] == machine["gpu"]:
            return profile
    operators = {name: {"axes": list(AXES[name]), "points": []} for name in PARTS}
    return {"format": FORMAT, "model": model, "tp": 1, "machine": machine,
            "operators": operators, "fit_steps": []}  # fmt: skip


def save(path: Path, profile: dict[str, Any]) -> None:
    """Write beside and rename, so that an interruption leaves the old file whole."""
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(profile, indent=None, separators=(",", ":")))
    beside.replace(path)


def measure_launch() -> dict[str, float]:
    """Seconds between the starts of tiny kernels: in a graph, and launched from Python."""
    x = torch.ones(1, device="cuda")
    calls = [lambda: x.add_(1)] * 200
    return {
        "graph_kernel_s": time_graph(calls).median_s,
        "eager_kernel_s": time_eager(calls).median_s,
    }


def measure_part(model: HybridModel, name: str, table: dict[str, Any]) -> None:
    """Fill in the points of one part that the table lacks."""
    done = {tuple(point["at"]) for point in table["points"]}
    for at in GRIDS[name]:
        if at not in done:
            timing = time_graph(PARTS[name](model, at), num_samples=7)
            table["points"].append({"at": list(at), **asdict(timing)})
    torch.cuda.empty_cache()


def measure_steps(model: HybridModel, steps: list[Any], count: int, seed: int) -> None:
    """Append timed random steps until there are `count`."""
    rng = np.random.default_rng(seed)
    shapes = [draw_step(rng) for _ in range(count)]
    for index in range(len(steps), count):
        steps.append(step_record(shapes[index], time_step(model, shapes[index], seed=index)))
        if index % 32 == 0:
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.kernels.calibrate")
    parser.add_argument("--model", choices=list(SHAPES), required=True)
    parser.add_argument("--out", type=Path, required=True, help="profile to write or complete")
    parser.add_argument("--fit-steps", type=int, default=60, help="whole steps for the fit")
    parser.add_argument("--held-out", type=int, default=0, help="whole steps no fit may see")
    parser.add_argument("--held-out-out", type=Path, help="file for the held-out steps")
    parser.add_argument("--commit", default="", help="commit of this tree, where git cannot tell")
    options = parser.parse_args()
    start_s = time.monotonic()
    profile = load_or_start(options.out, options.model, options.commit)
    largest = max(n * (c + 16) for n, c in GRIDS["full_decode"])
    model = HybridModel(SHAPES[options.model], NUM_SLOTS, num_pages=largest // 16 + 4096)
    if "floors" not in profile:
        profile["floors"] = asdict(measure_floors())
        profile["launch"] = measure_launch()
    state_bytes = model.states[:, 0].numel() * 4 + model.conv_states[:, 0].numel() * 2
    profile["state_bytes"] = state_bytes
    profile["attention"] = {
        "multiprocessors": num_multiprocessors(model.states.device),
        "heads": model.shape.heads,
        "query_block": query_block(model.caches[0], 1, model.shape.heads),
    }
    for name, table in profile["operators"].items():
        measure_part(model, name, table)
        save(options.out, profile)
        say(f"{name}: {len(table['points'])} points, {time.monotonic() - start_s:.0f} s")
    measure_steps(model, profile["fit_steps"], options.fit_steps, FIT_SEED)
    save(options.out, profile)
    say(f"fit steps: {len(profile['fit_steps'])}, {time.monotonic() - start_s:.0f} s")
    if options.held_out and options.held_out_out is not None:
        steps: list[Any] = []
        measure_steps(model, steps, options.held_out, HELD_OUT_SEED)
        held_out = {"machine": profile["machine"], "model": options.model, "steps": steps}
        options.held_out_out.write_text(json.dumps(held_out, separators=(",", ":")))
        say(f"held-out steps: {len(steps)}, {time.monotonic() - start_s:.0f} s")


if __name__ == "__main__":
    main()
