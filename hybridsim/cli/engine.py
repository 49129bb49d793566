"""`hybridsim engine`: what an engine would do with a model and a memory, before it is started."""

from typing import Annotated

import typer
from rich.table import Table

from hybridsim.build.show import SHOW, show_engine
from hybridsim.cli.options import key_values
from hybridsim.models import get_model
from hybridsim.terminal import wide_console
from hybridsim.units import parse_bytes

engine_app = typer.Typer(
    name="engine",
    help="Look at engines before starting them. Example: hybridsim engine show vllm-0.33.0 "
    "--model qwen3.5-0.8b --memory 2GiB",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add `engine` and its commands."""
    app.add_typer(engine_app)


@engine_app.command()
def show(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(SHOW)}.")],
    model: Annotated[str, typer.Option(help="Catalogue name or config.json.")],
    memory: Annotated[str, typer.Option(help="KV and states together, as in 40GiB; one rank.")],
    tp: Annotated[int, typer.Option(help="Tensor-parallel ranks.", min=1)] = 1,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", help="Engine option as key=value; the value is YAML."),
    ] = None,
) -> None:
    """Print block size and why, shortest reusable prefix, slots, caps and what binds first.

    Example: hybridsim engine show vllm-0.33.0 --model qwen3.5-0.8b --memory 2GiB -o spec_k=3
    """
    spec = get_model(model).for_rank(tp)
    rows = show_engine(name, spec, parse_bytes(memory, "--memory"), key_values(option or []))
    table = Table(title=f"{name}, {model}, {memory}", show_header=False)
    for label, text in rows:
        table.add_row(label, text)
    wide_console(120).print(table)
