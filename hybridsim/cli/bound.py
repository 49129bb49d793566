"""`hybridsim bound`: how much any policy can hit, from above (proven) and below (a plan)."""

from pathlib import Path
from typing import Annotated

import typer

from hybridsim.cli.curve import (
    First,
    FormatName,
    ModelName,
    OutDir,
    Overrides,
    PageSize,
    ReaderOptions,
    SourcePath,
    Warmup,
)
from hybridsim.errors import unknown_name
from hybridsim.units import parse_bytes

_HELP = """Bracket the best possible hit rate: a proven ceiling and a plan that comes near it.

Example: hybridsim bound conversation.jsonl --model qwen3.5-0.8b --memory 4GiB,8GiB
"""
_INSERTIONS = ("forced", "bypass")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bound", help=_HELP)(_bound)


def _bound(
    source: SourcePath,
    memory: Annotated[
        str | None, typer.Option(help="Sizes such as 4GiB,8GiB; default: the experiment's.")
    ] = None,
    format_name: FormatName = None,
    model: ModelName = None,
    layout: Annotated[str | None, typer.Option(help="shared, or split.")] = None,
    state_fraction: Annotated[
        list[float] | None, typer.Option(help="Share of memory for states (split).")
    ] = None,
    insertion: Annotated[
        str, typer.Option(help="forced: a request runs in the cache's memory; bypass: elsewhere.")
    ] = "forced",
    reward: Annotated[str, typer.Option(help="tokens, flops or seconds.")] = "tokens",
    gpu: Annotated[str | None, typer.Option(help="GPU whose seconds count.")] = None,
    any_cache: Annotated[
        bool,
        typer.Option(
            "--any-cache",
            help="Hold for every block size, with all output kept and no cap at n - 1 tokens.",
        ),
    ] = False,
    steps: Annotated[int, typer.Option(help="Steps of the search for prices.", min=1)] = 800,
    page_size: PageSize = None,
    warmup: Warmup = None,
    first: First = None,
    option: ReaderOptions = None,
    overrides: Overrides = None,
    out: OutDir = None,
) -> None:
    # Imported late: --help must not wait for numpy.
    from rich.console import Console

    from hybridsim.analysis import bound_command
    from hybridsim.analysis.inputs import Wish, load_subject, reader_options

    if insertion not in _INSERTIONS:
        raise unknown_name("--insertion", insertion, list(_INSERTIONS))
    sizes = tuple(parse_bytes(size, "--memory") for size in memory.split(",")) if memory else ()
    wish = Wish(
        format=format_name,
        model=model,
        layout=layout or ("shared" if source.suffix not in (".yaml", ".yml") else None),
        page_size=page_size,
        warmup=warmup,
        first=first,
        options=reader_options(option or []),
        overrides=tuple(overrides or ()),
    )
    subject = load_subject(source, wish)
    out_dir = out or Path("results") / f"{subject.name}-bound"
    out_dir.mkdir(parents=True, exist_ok=True)
    options = bound_command.BoundOptions(
        memories_bytes=sizes,
        state_fractions=tuple(state_fraction or ()),
        insertion="forced" if insertion == "forced" else "bypass",
        reward=reward,
        gpu=gpu,
        num_steps=steps,
        any_cache=any_cache,
    )
    bound_command.run(subject, options, out_dir, Console(stderr=True))
