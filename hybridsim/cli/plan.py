"""`hybridsim plan`: split, policy and memory for a trace, a model and an engine."""

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
    key_values,
    make_wish,
    result_folder,
    sizes,
)
from hybridsim.errors import UserError

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
    eviction: Annotated[
        list[str] | None,
        typer.Option(help="Only these evictions (research), the first as a start; repeatable."),
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
    force: Force = False,
) -> None:
    # Imported late: --help must not wait for numpy and matplotlib.
    from rich.console import Console

    from hybridsim.analysis.inputs import is_experiment
    from hybridsim.plan import command
    from hybridsim.plan.inputs import load_inputs

    memories = [size for text in memory or [] for size in sizes(text, "--memory")]
    options = command.PlanOptions(
        engine=engine,
        memories_bytes=tuple(dict.fromkeys(memories)),
        target=target,
        step=step,
        num_seeds=seeds,
        fixed=key_values(engine_option or [], "--engine-option"),
    )
    if eviction and engine != command.RESEARCH:
        raise UserError("--eviction", f"{engine} has its own; allowed: --engine-option")
    command.check(options)
    wish = make_wish(
        format_name=format_name, model=model, layout="split" if is_experiment(source) else None,
        page_size=page_size, warmup=warmup, first=first, option=option, overrides=overrides,
        checkpoint=checkpoint, eviction=eviction,
    )  # fmt: skip
    inputs = load_inputs(source, wish, tp)
    name = f"{inputs.subject.name}-plan-{inputs.subject.model.name}-{engine}"
    folder = result_folder(out, name, "plan.json", force=force)
    command.run(inputs, options, folder, Console(stderr=True))
