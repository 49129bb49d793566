"""What `hybridsim cost show` and `cost list` print and write."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from hybridsim.cost.file_shapes import read_steps
from hybridsim.cost.fitting import judge
from hybridsim.cost.measured import MeasuredCost
from hybridsim.cost.show import tables
from hybridsim.cost.show.pictures import draw_parts, draw_steps, draw_typical
from hybridsim.cost.show.points import (
    PartPoint,
    StepPoint,
    StepShape,
    part_points,
    step_points,
    typical_steps,
)
from hybridsim.cost.show.subject import Subject
from hybridsim.files import make_folder, write_csv, written_whole

MODELS = {"measured model": "measured_model_s", "roofline": "roofline_s"}
_KINDS = ("all", "decode", "prefill", "mixed")


def show(subject: Subject, steps_path: Path | None, out_dir: Path, console: Console) -> None:
    """Print tables and write figures and CSV files into `out_dir`.

    steps_path: whole steps that no fit has seen, beside those that the profile was fitted on.
    UserError for a file that holds no steps, or those of another model.
    """
    steps = _steps(subject, steps_path)
    make_folder(out_dir, "--out")
    if subject.roofline is not None:
        _show_typical(subject, out_dir, console)
    if subject.data is not None:
        _show_parts(subject, out_dir, console)
    for what, points in steps.items():
        console.print(tables.errors(what, step_errors(points)))
    if steps:
        rows = [(what, *point) for what, points in steps.items() for point in points]
        _write(out_dir / "steps.csv", ("set", *StepPoint._fields), rows)
        what, points = list(steps.items())[-1]
        with written_whole(out_dir / "steps.png") as path:
            draw_steps(f"{subject.name}: {len(points)} {what}", points, path)
    console.print(f"figures and tables: {out_dir}", markup=False, highlight=False)


def _steps(subject: Subject, path: Path | None) -> dict[str, list[StepPoint]]:
    """Whole steps by what they are to the profile; the last set is the one to be drawn."""
    found = {}
    if subject.data is not None:
        found["steps of the fit"] = step_points(subject, subject.data.get("fit_steps", ()))
    if path is not None:
        found["held-out steps"] = step_points(
            subject, read_steps(path, subject.model.name, subject.model.tp, "--steps")
        )
    return {what: points for what, points in found.items() if points}


def step_errors(points: Sequence[StepPoint]) -> Iterator[tables.ErrorRow]:
    """How each model does on all steps, and on each kind of step that there is."""
    for model, field in MODELS.items():
        for kind in _KINDS:
            mine = [point for point in points if kind in ("all", point.kind)]
            predicted = [getattr(point, field) for point in mine]
            if not mine or predicted[0] is None:
                continue
            measured = np.array([point.measured_s for point in mine])
            yield model, kind, judge(np.array(predicted), measured)


def part_errors(points: Sequence[PartPoint]) -> Iterator[tables.ErrorRow]:
    """How the roofline does on the measured points of each part."""
    for part in dict.fromkeys(point.part for point in points):
        mine = [point for point in points if point.part == part]
        predicted = np.array([point.roofline_s for point in mine], dtype=float)
        yield part, f"{len(mine)}", judge(predicted, np.array([p.measured_s for p in mine]))


def _show_typical(subject: Subject, out_dir: Path, console: Console) -> None:
    assert subject.roofline is not None
    steps = typical_steps(subject.model.state_bytes)
    parts = {name: subject.roofline.parts_s(*step) for name, step in steps.items()}
    measured = subject.measured
    totals = {name: _whole_s(measured, step) for name, step in steps.items()} if measured else {}
    console.print(tables.typical(subject.name, parts, totals))
    rows = ((name, part, _number(s)) for name, one in parts.items() for part, s in one.items())
    _write(out_dir / "typical.csv", ("step", "part", "roofline_s"), rows)
    with written_whole(out_dir / "typical.png") as path:
        draw_typical(f"{subject.name}: typical steps by roofline", parts, path)


def _whole_s(measured: MeasuredCost, step: StepShape) -> float:
    """A copy is never a step of its own: what it adds to one, so without what every step takes."""
    if step.chunks or step.num_decodes:
        return measured.step_s(*step)
    return measured.profile.fit.scale * sum(measured.parts_s(*step).values())


def _show_parts(subject: Subject, out_dir: Path, console: Console) -> None:
    points = list(part_points(subject))
    if subject.roofline is not None:
        console.print(tables.parts(part_errors(points)))
    rows = ((p.part, *_two(p.at), *map(_number, p[2:])) for p in points)
    columns = ("part", "at_first", "at_second", *PartPoint._fields[2:])
    _write(out_dir / "parts.csv", columns, rows)
    with written_whole(out_dir / "parts.png") as path:
        draw_parts(subject, points, path)


def _two(at: tuple[int, ...]) -> tuple[object, object]:
    return at[0], at[1] if len(at) > 1 else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6e}"


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A CSV file; floats of rows are seconds."""
    cells = ([_number(x) if x is None or isinstance(x, float) else x for x in row] for row in rows)
    write_csv(path, [columns, *cells])
