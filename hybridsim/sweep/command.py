"""What `hybridsim run` and `hybridsim report` do, from a file to an exit code."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hybridsim.build import check_run
from hybridsim.config import Experiment, Run, load_experiment
from hybridsim.files import WriteError
from hybridsim.report.draw import draw_report
from hybridsim.sweep.runner import SweepOutcome, check_experiment, make_executor, run_experiment
from hybridsim.sweep.store import read_meta, remove_leftovers
from hybridsim.terminal import EXIT_INTERRUPTED, wide_console
from hybridsim.units import format_bytes

EXIT_FAILED_RUNS = 1


def run(
    path: Path,
    overrides: Sequence[str],
    *,
    out_dir: Path | None = None,
    num_jobs: int = 1,
    executor_name: str = "local",
    resume: bool = False,
    dry_run: bool = False,
    console: Console | None = None,
) -> int:
    """The exit code: 0, 1 when runs failed, 130 when interrupted. UserError for bad input."""
    console = console or Console(stderr=True)
    experiment = load_experiment(path, overrides)
    executor = make_executor(executor_name, num_jobs)
    out_dir = out_dir if out_dir is not None else Path("results") / experiment.name
    if dry_run:
        check_experiment(experiment)
        wide_console(200).print(_runs_table(experiment))
        return 0
    try:
        outcome = run_experiment(experiment, out_dir, executor, console, resume=resume)
    except KeyboardInterrupt:
        remove_leftovers(out_dir)
        console.print(
            f"interrupted; finished runs are in {out_dir}; go on with --resume", soft_wrap=True
        )
        return EXIT_INTERRUPTED
    except WriteError as error:
        remove_leftovers(out_dir)
        kept = f"{error.message}; finished runs stay in {out_dir}, go on with --resume"
        raise WriteError(error.place, kept) from None
    if outcome.finished or outcome.skipped:
        draw_report(out_dir)
    _tell(outcome, out_dir, console)
    return EXIT_FAILED_RUNS if outcome.failures else 0


def report(folder: Path) -> None:
    """Draw figures and report anew."""
    console = Console(stderr=True)
    for path in draw_report(folder):
        console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _tell(outcome: SweepOutcome, out_dir: Path, console: Console) -> None:
    skipped = f", {len(outcome.skipped)} were finished before" if outcome.skipped else ""
    console.print(
        f"{len(outcome.finished)} runs done{skipped}, {len(outcome.failures)} failed", markup=False
    )
    if outcome.failures:
        console.print(
            f"configs and tracebacks of the failed runs: {out_dir / 'failed'}", soft_wrap=True
        )
    _tell_refusals(outcome, out_dir, console)
    if outcome.finished or outcome.skipped:
        console.print(
            f"summary: {out_dir / 'summary.csv'}", markup=False, highlight=False, soft_wrap=True
        )
        console.print(
            f"report:  {out_dir / 'report.html'}", markup=False, highlight=False, soft_wrap=True
        )


def _tell_refusals(outcome: SweepOutcome, out_dir: Path, console: Console) -> None:
    """Refused requests spoil a comparison of hit rates, so they are no matter of a column alone."""
    runs = [*outcome.finished, *outcome.skipped]
    num_refusing = sum(bool(read_meta(out_dir, run)["metrics"]["num_refused"]) for run in runs)
    if num_refusing:
        console.print(
            f"{num_refusing} of {len(runs)} runs refused requests: see num_refused in the summary, "
            "and why in the report",
            style="yellow",
            soft_wrap=True,
        )


def _runs_table(experiment: Experiment) -> Table:
    """Runs and the sizes of their caches; a column that is empty in every row is left out."""
    headings = ["run", *experiment.axes, "memory", "KV tokens", "state slots", "blocks"]
    rows = [_sizes(run) for run in experiment.runs]
    table = Table(title=f"{experiment.name}: {len(rows)} runs")
    shown = [index for index in range(len(headings)) if any(row[index] for row in rows)]
    for index in shown:
        table.add_column(headings[index], no_wrap=True)
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    return table


def _sizes(run: Run) -> list[str]:
    capacity = check_run(run.config).capacity
    total = format_bytes(capacity.total_bytes) if capacity.total_bytes else ""
    counts = (capacity.kv_tokens, capacity.state_slots, capacity.num_blocks)
    return [
        run.run_id,
        *(str(value) for value in run.swept.values()),
        "unlimited" if capacity.is_unlimited else total,
        *("" if count is None else f"{count:,}" for count in counts),
    ]
