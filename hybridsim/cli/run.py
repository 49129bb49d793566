"""`hybridsim run` and `hybridsim report`."""

from pathlib import Path
from typing import Annotated

import typer

from hybridsim.cli.options import Overrides

_RUN_HELP = """Run an experiment: tables, figures and a report.

Example: hybridsim run experiments/quickstart.yaml --set trace.first=500 --jobs 2
"""
_REPORT_HELP = """Draw a result folder's figures and report anew.

Reads its tables; runs nothing.

Example: hybridsim report results/quickstart
"""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("run", help=_RUN_HELP)(_run)
    app.command("report", help=_REPORT_HELP)(_report)


def _run(
    experiment: Annotated[Path, typer.Argument(help="Experiment file (YAML).")],
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Result folder.", show_default="results/<name>")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes side by side.")] = 1,
    executor: Annotated[str, typer.Option(help="local or ray.")] = "local",
    resume: Annotated[bool, typer.Option("--resume", help="Skip runs that are finished.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and their sizes; write nothing.")
    ] = False,
) -> None:
    # Imported late: --help must not wait for numpy and matplotlib.
    from hybridsim.sweep import command

    code = command.run(
        experiment,
        overrides or [],
        out_dir=out,
        num_jobs=jobs,
        executor_name=executor,
        resume=resume,
        dry_run=dry_run,
    )
    raise typer.Exit(code)


def _report(folder: Annotated[Path, typer.Argument(help="Result folder of a run.")]) -> None:
    from hybridsim.sweep import command

    command.report(folder)
