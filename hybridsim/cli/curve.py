"""`hybridsim curve`: the LRU hit rate at every memory size, from one pass; or a grid of replays."""

from pathlib import Path
from typing import Annotated

import typer

from hybridsim.cli.options import (
    First,
    Force,
    FormatName,
    ModelName,
    OutDir,
    Overrides,
    PageSize,
    ReaderOptions,
    SourcePath,
    Warmup,
    make_wish,
    result_folder,
    sizes,
)
from hybridsim.errors import UserError, unknown_name

_HELP = """Draw the LRU hit rate over memory, from one pass over the trace.

Example: hybridsim curve conversation.jsonl --model qwen3.5-0.8b --checkpoint prompt_end
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("curve", help=_HELP)(_curve)


def _curve(
    source: SourcePath,
    format_name: FormatName = None,
    model: ModelName = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="Policy name or YAML mapping; may be repeated: a line each."),
    ] = None,
    layout: Annotated[
        str | None, typer.Option(help="shared: a curve; split: a surface over (KV, states).")
    ] = None,
    refresh: Annotated[
        str,
        typer.Option(
            help="States a request touches: path (those it finds, as the cache's lru does), named "
            "(those it asks for), again (all ever asked for on its path, as in the textbook)."
        ),
    ] = "path",
    page_size: PageSize = None,
    warmup: Warmup = None,
    first: First = None,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="Block LRU over blocks of the trace; needs no model.")
    ] = False,
    grid: Annotated[
        str | None,
        typer.Option(help="Replay exactly at these sizes instead (1GiB,2GiB): any policy goes."),
    ] = None,
    eviction: Annotated[
        list[str] | None,
        typer.Option(help="With --grid: eviction policies; may be repeated. Default: lru."),
    ] = None,
    thinning: Annotated[
        list[str] | None, typer.Option(help="With --grid: thinning rules; may be repeated.")
    ] = None,
    state_fraction: Annotated[
        float | None, typer.Option(help="With --grid and layout split: share for states.")
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(help="With --blocks: keep this share of the blocks; gives an error bar."),
    ] = None,
    bound: Annotated[
        bool,
        typer.Option(help="Draw what no policy passes as well; some seconds on long traces."),
    ] = True,
    option: ReaderOptions = None,
    overrides: Overrides = None,
    out: OutDir = None,
    force: Force = False,
) -> None:
    # Imported late: --help must not wait for numpy and matplotlib.
    from rich.console import Console

    from hybridsim.analysis import blocks_command, curve_command, grid_command
    from hybridsim.analysis.curve import REFRESHES
    from hybridsim.analysis.inputs import load_subject
    from hybridsim.build import build_cache
    from hybridsim.sim.grid import replay_line

    _refuse_idle(grid, blocks, eviction, thinning, state_fraction, sample)
    kinds = {name: name for name in REFRESHES}
    if refresh not in kinds:
        raise unknown_name("--refresh", refresh, list(kinds))
    wish = make_wish(
        format_name=format_name, model=model or ("llama-3.1-8b" if blocks else None),
        layout=layout, page_size=page_size, warmup=warmup, first=first, option=option,
        overrides=overrides, checkpoint=checkpoint, eviction=eviction, thinning=thinning,
    )  # fmt: skip
    memories = [] if grid is None else sizes(grid, "--grid")
    console = Console(stderr=True)

    def folder(name: str) -> Path:
        return result_folder(out, name, "curve.csv", force=force)

    if sample is not None:
        name = source.name.split(".")[0]
        blocks_command.run_sample(source, wish, sample, folder(f"{name}-curve-sample"), console)
        return
    subject = load_subject(source, wish)
    kind = "blocks" if blocks else "grid" if grid else subject.layout
    name = f"{subject.name}-curve-{kind}" + ("" if blocks else f"-{subject.model.name}")
    if blocks:
        blocks_command.run_blocks(subject, folder(name), console)
    elif grid is not None:
        places = folder(name)
        grid_command.run_grid(
            subject, memories, state_fraction, replay_line, build_cache, places, console
        )
    else:
        for note in subject.notes:
            console.print(note, markup=False, highlight=False)
        run = curve_command.run_shared if subject.layout == "shared" else curve_command.run_split
        run(subject, kinds[refresh], folder(name), console, has_bound=bound)


def _refuse_idle(
    grid: str | None,
    blocks: bool,
    eviction: list[str] | None,
    thinning: list[str] | None,
    state_fraction: float | None,
    sample: float | None,
) -> None:
    """UserError for options that would change nothing."""
    for name, value in (
        ("--eviction", eviction), ("--thinning", thinning), ("--state-fraction", state_fraction),
    ):  # fmt: skip
        if value and grid is None:
            raise UserError(name, "changes nothing in one pass of LRU; allowed: with --grid")
    if sample is not None and not blocks:
        raise UserError("--sample", "changes nothing without blocks; allowed: with --blocks")
    if blocks and grid is not None:
        raise UserError("--grid", "and --blocks are two things; allowed: one of them")
