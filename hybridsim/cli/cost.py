"""`hybridsim cost list | show`."""

from pathlib import Path
from typing import Annotated

import typer

from hybridsim.cli.options import ModelName, Overrides
from hybridsim.terminal import wide_console

_LIST_HELP = """List the GPUs with a name and the measured profiles that ship.

Example: hybridsim cost list
"""
_SHOW_HELP = """Show what steps cost, and how near the predictions are to what was measured.

Of a model on a GPU, or of those of an experiment. Prints tables and writes figures and CSV files:
typical steps by roofline and, where there is a profile, its parts over their grids and whole steps,
predicted against measured.

Example: hybridsim cost show --model qwen3.5-0.8b --gpu h200
"""
_WIDTH = 200


def register(app: typer.Typer) -> None:
    """Add the commands."""
    cost = typer.Typer(
        help="Step times of models on GPUs. Example: hybridsim cost show --model qwen3.5-0.8b",
        no_args_is_help=True,
    )
    cost.command("list", help=_LIST_HELP)(_list)
    cost.command("show", help=_SHOW_HELP)(_show)
    app.add_typer(cost, name="cost")


def _list() -> None:
    from hybridsim.cost.gpus import GPUS
    from hybridsim.cost.show import tables
    from hybridsim.cost.show.subject import shipped

    console = wide_console(_WIDTH, highlight=False)
    console.print(tables.gpus(GPUS.values()))
    console.print(tables.profiles(shipped()))


def _show(
    experiment: Annotated[
        Path | None, typer.Argument(help="Experiment whose GPUs and models to show.")
    ] = None,
    model: ModelName = None,
    gpu: Annotated[str | None, typer.Option(help="Name, or a YAML mapping of rates.")] = None,
    tp: Annotated[int | None, typer.Option(help="One of so many tensor-parallel ranks.")] = None,
    profile: Annotated[
        Path | None, typer.Option(help="Measured profile.", show_default="the one that ships")
    ] = None,
    steps: Annotated[Path | None, typer.Option(help="Held-out steps that calibrate wrote.")] = None,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="Result folder.", show_default="results/cost-<gpu>-<model>")
    ] = None,
) -> None:
    # Imported late: --help must not wait for numpy and matplotlib.
    from hybridsim.cost.show.command import show
    from hybridsim.cost.show.subject import Wish, find_subjects

    wish = Wish(experiment, model, gpu, tp, profile, tuple(overrides or ()))
    found = find_subjects(wish)
    for subject in found:
        folder = Path("results") / f"cost-{subject.name}"
        if out is not None:
            folder = out / subject.name if len(found) > 1 else out
        show(subject, steps, folder, wide_console(_WIDTH, highlight=False))
