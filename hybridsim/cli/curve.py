"""`hybridsim curve`: the LRU hit rate at every memory size, from one pass."""

from pathlib import Path
from typing import Annotated

import typer

from hybridsim.errors import unknown_name
from hybridsim.units import parse_bytes

_HELP = """Draw the exact LRU hit rate over memory, from one pass over the trace.

Example: hybridsim curve conversation.jsonl --model qwen3.5-0.8b --checkpoint prompt_end
"""

SourcePath = Annotated[Path, typer.Argument(help="Experiment (.yaml) or trace file.")]
FormatName = Annotated[
    str | None, typer.Option("--format", help="Trace format; default: guessed from the file.")
]
ModelName = Annotated[str | None, typer.Option(help="Catalogue name or path of a config.json.")]
PageSize = Annotated[int | None, typer.Option(help="Tokens in a KV page.", min=1)]
Warmup = Annotated[
    float | None, typer.Option(help="Fraction of requests left out of the rates.", min=0, max=1)
]
First = Annotated[int | None, typer.Option(help="Read only so many requests.", min=1)]
ReaderOptions = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="Trace reader option as key=value.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Override a key of the experiment."),
]
OutDir = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]


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
        typer.Option(help="States a request touches: path (all on it) or named (its own)."),
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
    state_fraction: Annotated[
        float | None, typer.Option(help="With --grid and layout split: share for states.")
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(help="With --blocks: keep this share of the blocks; gives an error bar."),
    ] = None,
    option: ReaderOptions = None,
    overrides: Overrides = None,
    out: OutDir = None,
) -> None:
    # Imported late: --help must not wait for numpy and matplotlib.
    from rich.console import Console

    from hybridsim.analysis import curve_command
    from hybridsim.analysis.curve import Refresh
    from hybridsim.analysis.inputs import Wish, load_subject, reader_options

    if refresh not in ("path", "named"):
        raise unknown_name("--refresh", refresh, ["path", "named"])
    kind: Refresh = "named" if refresh == "named" else "path"
    wish = Wish(
        format=format_name,
        model=model or ("llama-3.1-8b" if blocks else None),
        checkpoint=tuple(checkpoint or ()),
        layout=layout or ("shared" if source.suffix not in (".yaml", ".yml") else None),
        page_size=page_size,
        warmup=warmup,
        first=first,
        options=reader_options(option or []),
        overrides=tuple(overrides or ()),
    )
    subject = load_subject(source, wish)
    console = Console(stderr=True)
    for note in subject.notes:
        console.print(note, markup=False, highlight=False)
    out_dir = out or Path("results") / f"{subject.name}-curve"
    out_dir.mkdir(parents=True, exist_ok=True)
    if blocks and sample is not None:
        curve_command.run_sample(subject, sample, out_dir, console)
    elif blocks:
        curve_command.run_blocks(subject, out_dir, console)
    elif grid is not None:
        sizes = [parse_bytes(size, "--grid") for size in grid.split(",")]
        curve_command.run_grid(subject, sizes, state_fraction, out_dir, console)
    elif subject.layout == "shared":
        curve_command.run_shared(subject, kind, out_dir, console)
    else:
        curve_command.run_split(subject, kind, out_dir, console)
