"""What an earlier start of the calibration program has left, checked before it is added to."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hybridsim.errors import UserError
from hybridsim.files import read_json
from hybridsim.kernels.calibrate.grids import AXES
from hybridsim.kernels.calibrate.steps import shape_record
from hybridsim.kernels.model.batch import StepShape

FORMAT = "hybridsim-profile-1"
# Times of one profile are measured with the same of these.
VERSIONS = ("gpu", "driver", "torch", "triton")

Profile = dict[str, Any]
Machine = Mapping[str, str]


def load_or_start(
    path: Path, model: str, tp: int, machine: Machine, shapes: Sequence[StepShape]
) -> Profile:
    """The profile so far, if it is of this model, rank and machine, or an empty one.

    shapes: of the whole steps that belong into it. UserError for a profile of something else.
    """
    head = {"format": FORMAT, "model": model, "tp": tp, "machine": dict(machine)}
    if not path.exists():
        return {**head, "operators": {}, "fit_steps": []}
    profile = _read(path, (*head, "operators", "fit_steps"))
    if profile["format"] != FORMAT:
        raise UserError(str(path), f"is of format {profile['format']!r}; allowed: {FORMAT}")
    _check_origin(profile, head, path)
    operators = profile["operators"]
    for name, table in operators.items() if isinstance(operators, dict) else [("", None)]:
        if not _is_table(name, table):
            raise UserError(f"{path}.operators.{name}", "is no part as this program writes them")
    check_steps(profile["fit_steps"], shapes, f"{path}.fit_steps")
    return profile


def load_held_out(path: Path, profile: Profile, shapes: Sequence[StepShape]) -> Profile:
    """The held-out steps so far, or none; UserError where the file holds those of another profile.

    shapes: of the steps that belong into it.
    """
    head = {key: profile[key] for key in ("model", "tp", "machine")}
    if not path.exists():
        return {**head, "steps": []}
    found = _read(path, (*head, "steps"))
    _check_origin(found, head, path)
    if found["machine"] != head["machine"]:  # of another commit or day, so of another profile
        raise UserError(f"{path}.machine", "is not that of the profile; allowed: a new file")
    check_steps(found["steps"], shapes, f"{path}.steps")
    return found


def check_steps(steps: object, shapes: Sequence[StepShape], place: str) -> None:
    """UserError unless the steps, as far as there are any, are of these shapes."""
    if not isinstance(steps, list):
        raise UserError(place, "is no list of steps")
    for index, (step, shape) in enumerate(zip(steps, shapes, strict=False)):
        expected = shape_record(shape)
        if not isinstance(step, dict) or {key: step.get(key) for key in expected} != expected:
            raise UserError(
                f"{place}.{index}", "is not the step that is drawn here; allowed: a new file"
            )


def _read(path: Path, keys: Sequence[str]) -> Profile:
    found = read_json(path)
    if not isinstance(found, dict) or not all(key in found for key in keys):
        allowed = "a file that this program has written, or a new one"
        raise UserError(str(path), f"is no mapping with {', '.join(keys)}; allowed: {allowed}")
    return found


def _check_origin(found: Profile, head: Mapping[str, Any], path: Path) -> None:
    """UserError unless a file is of the model, rank and machine that `head` names."""
    if not isinstance(found["machine"], dict):
        raise UserError(f"{path}.machine", "is no mapping; allowed: a new file")
    if _name(found) != _name(head):
        raise UserError(
            str(path), f"is of {_name(found)}; allowed: one of {_name(head)}, or a new file"
        )
    for key in VERSIONS:
        theirs, ours = found["machine"].get(key), head["machine"].get(key)
        if theirs != ours:
            raise UserError(
                f"{path}.machine.{key}",
                f"{theirs!r} is not that of this run; allowed: {ours!r}, or a new file",
            )


def _name(head: Mapping[str, Any]) -> str:
    return f"{head['model']} with tp {head['tp']}"


def _is_table(name: str, table: object) -> bool:
    """Whether a part has axes, and points with whole numbers on each of them."""
    if not isinstance(table, dict) or not isinstance(table.get("points"), list):
        return False
    axes = table.get("axes")
    if not isinstance(axes, list) or axes != list(AXES.get(name, axes)):
        return False
    return all(
        isinstance(point, dict)
        and isinstance(point.get("at"), list)
        and len(point["at"]) == len(axes)
        and all(isinstance(x, int) for x in point["at"])
        for point in table["points"]
    )
