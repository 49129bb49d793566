"""`hybridsim plan`: split, policy and memory for a trace, a model and an engine."""

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
from hybridsim.units import parse_bytes

_HELP = """Find the best split, policy and settings for a memory, and check them by replay.

Example: hybridsim plan conversation.jsonl --model qwen3.5-0.8b --memory 16GiB --target 0.3
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan", help=_HELP)(_plan)


def _plan(
    source: SourcePath,
    memory: Annotated[
        list[str] | None,
        typer.Option(help="KV and states together, a rank; may be repeated: 8GiB, or 4GiB,8GiB."),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Token hit rate whose memory is wanted, such as 0.3.")
    ] = None,
    model: ModelName = None,
    engine: Annotated[
        str, typer.Option(help="research, sglang-0.5.23, vllm-0.33.0 or vllm-0.27.1.")
    ] = "research",
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks; sizes are of one.", min=1)] = 1,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(help="Only these policies (research): a name or YAML mapping, repeatable."),
    ] = None,
    engine_option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the engine as key=value, which is then not searched."),
    ] = None,
    step: Annotated[float, typer.Option(help="Step of the state fraction in checks.")] = 0.05,
    seeds: Annotated[int, typer.Option(help="Seeds to try where a trace is drawn.", min=1)] = 3,
    format_name: FormatName = None,
    page_size: PageSize = None,
    warmup: Warmup = None,
    first: First = None,
    option: ReaderOptions = None,
    overrides: Overrides = None,
    out: OutDir = None,
) -> None:
    # Imported late: --help must not wait for numpy and matplotlib.
    from rich.console import Console

    from hybridsim.analysis.inputs import Wish, reader_options
    from hybridsim.plan import command

    sizes = [size for text in memory or [] for size in text.split(",")]
    wish = Wish(
        format=format_name,
        model=model,
        checkpoint=tuple(checkpoint or ()),
        layout="split" if source.suffix in (".yaml", ".yml") else None,
        page_size=page_size,
        warmup=warmup,
        first=first,
        options=reader_options(option or []),
        overrides=tuple(overrides or ()),
    )
    options = command.PlanOptions(
        engine=engine,
        memories_bytes=tuple(dict.fromkeys(parse_bytes(size, "--memory") for size in sizes)),
        target=target,
        tp=tp,
        step=step,
        num_seeds=seeds,
        fixed=reader_options(engine_option or []),
    )
    out_dir = out or Path("results") / f"{source.name.split('.')[0]}-plan"
    command.run(source, wish, options, out_dir, Console(stderr=True))
