"""A whole experiment: what is left to do, who does it, and the tables at the end."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from hybridsim.build import build_cache, check_run, load_trace
from hybridsim.config import Experiment, Run
from hybridsim.errors import UserError
from hybridsim.files import make_folder
from hybridsim.sweep.events import Event, Executor, Failed, Finished
from hybridsim.sweep.execute import check_trace, execute, ideals
from hybridsim.sweep.inputs import code_digest
from hybridsim.sweep.local import run_processes, run_serial
from hybridsim.sweep.on_ray import import_ray, run_ray
from hybridsim.sweep.plots import with_fitting_plots
from hybridsim.sweep.progress import SweepProgress
from hybridsim.sweep.store import (
    ABSENT,
    forget_failure,
    remove_leftovers,
    why_anew,
    write_experiment,
    write_failure,
    write_run,
)
from hybridsim.sweep.summary import write_summary


@dataclass(slots=True)
class SweepOutcome:
    """Runs by how they ended. `skipped` were finished before (--resume)."""

    finished: list[Run] = field(default_factory=list)
    skipped: list[Run] = field(default_factory=list)
    failures: list[tuple[Run, Failed]] = field(default_factory=list)


def make_executor(name: str, num_jobs: int) -> Executor:
    """`local` or `ray`; UserError for a name or number that is none."""
    if num_jobs < 1:
        raise UserError("--jobs", f"{num_jobs} is not allowed; allowed: an integer >= 1")
    if name == "ray":
        import_ray()
        return run_ray
    if name != "local":
        raise UserError("--executor", f"{name!r} is not allowed; allowed: local, ray")
    return run_serial if num_jobs == 1 else partial(run_processes, num_jobs=num_jobs)


def check_experiment(experiment: Experiment) -> tuple[Experiment, list[str]]:
    """Build every run's objects without its trace, so that a bad name or size shows now.

    Returns the experiment with the figures that its runs can fill, and sentences about the others.
    Raises the UserError at the file and line that gave the value.
    """
    built = {}
    for run in experiment.runs:
        try:
            built[run.config.engine.name] = check_run(run.config)
        except UserError as error:
            raise experiment.relocate(error, run) from None
    return with_fitting_plots(experiment, built.values())


def read_traces(experiment: Experiment) -> dict[str, int]:
    """Parse each trace once, before anything is written; number of requests of each run by id."""
    sizes = {}
    for run in experiment.runs:
        try:
            trace = load_trace(run.config)
            built = build_cache(run.config)
            check_trace(run.config, trace, built)
            ideals(run.config, built)  # what workers would otherwise compute once each
            sizes[run.run_id] = len(trace.requests)
        except UserError as error:
            raise experiment.relocate(error, run) from None
    return sizes


def run_experiment(
    experiment: Experiment,
    out_dir: Path,
    executor: Executor,
    console: Console,
    *,
    resume: bool = False,
) -> SweepOutcome:
    """Do all runs, write each as it finishes, then the summary of those that are whole.

    A failing run is told and written down under `failed/`; the others go on. Ctrl-C, and a disk
    that takes no more files (WriteError), stop the runs in flight and pass through.
    """
    code_digest()  # before anyone edits what is loaded here already
    experiment, notes = check_experiment(experiment)
    for note in notes:
        console.print(note, style="yellow", markup=False, soft_wrap=True)
    with console.status("reading the trace"):
        sizes = read_traces(experiment)
    make_folder(out_dir, "--out")
    remove_leftovers(out_dir)
    write_experiment(out_dir, experiment)
    outcome = SweepOutcome()
    if resume:
        outcome.skipped = _kept(experiment.runs, out_dir, console)
    todo = [run for run in experiment.runs if run not in outcome.skipped]
    progress = SweepProgress(
        {index: sizes[run.run_id] for index, run in enumerate(todo)},
        {index: run.label() for index, run in enumerate(todo)},
        console,
    )
    with progress:
        on_event = partial(_note, outcome, todo, out_dir, progress.show)
        executor(partial(_work, todo, out_dir), range(len(todo)), on_event)
    whole = {run.run_id for run in (*outcome.finished, *outcome.skipped)}
    write_summary(out_dir, experiment, whole)
    return outcome


def _kept(runs: list[Run], out_dir: Path, console: Console) -> list[Run]:
    """Runs whose folders stand for them as they are; why others are made anew is told."""
    reasons = [why_anew(out_dir, run) for run in runs]
    for reason, number in Counter(reasons).items():
        if reason not in (None, ABSENT):
            console.print(
                f"{number} of {len(runs)} runs are made anew: {reason}",
                style="yellow", markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
    return [run for run, reason in zip(runs, reasons, strict=True) if reason is None]


def _work(todo: list[Run], out_dir: Path, index: int, on_progress: Callable[[int], None]) -> None:
    run = todo[index]
    write_run(out_dir, run, execute(run, on_progress))


def _note(
    outcome: SweepOutcome,
    todo: list[Run],
    out_dir: Path,
    show: Callable[[Event], None],
    event: Event,
) -> None:
    run = todo[event.index]
    if isinstance(event, Finished):
        outcome.finished.append(run)
        forget_failure(out_dir, run)
    elif isinstance(event, Failed):
        if event.stops is not None:
            raise event.stops
        outcome.failures.append((run, event))
        write_failure(out_dir, run, event.reason, event.traceback)
    show(event)
