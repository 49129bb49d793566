"""`hybridsim bound`: how much any policy can hit, from above (proven) and below (a plan)."""

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
from hybridsim.errors import unknown_name

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
    gpu: Annotated[
        str | None, typer.Option(help="GPU whose seconds count: a name or YAML mapping.")
    ] = None,
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
    force: Force = False,
) -> None:
    # Imported late: --help must not wait for numpy.
    from rich.console import Console

    from hybridsim.analysis import bound_command
    from hybridsim.analysis.inputs import load_subject
    from hybridsim.build import build_cache

    if insertion not in _INSERTIONS:
        raise unknown_name("--insertion", insertion, list(_INSERTIONS))
    options = bound_command.BoundOptions(
        memories_bytes=tuple(sizes(memory, "--memory")) if memory else (),
        state_fractions=tuple(state_fraction or ()),
        insertion="forced" if insertion == "forced" else "bypass",
        reward=reward,
        gpu=gpu,
        num_steps=steps,
        any_cache=any_cache,
    )
    wish = make_wish(
        format_name=format_name, model=model, layout=layout, page_size=page_size, warmup=warmup,
        first=first, option=option, overrides=overrides,
    )  # fmt: skip
    subject = load_subject(source, wish)
    name = f"{subject.name}-bound-{subject.model.name}-{subject.layout}"
    folder = result_folder(out, name, "bound.csv", force=force)
    bound_command.run(subject, options, build_cache, folder, Console(stderr=True))
