"""`hybridsim engine`: what an engine would do with a model and a memory, before it is started."""

from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table

from hybridsim.build.show import SHOW, show_engine
from hybridsim.errors import UserError
from hybridsim.models import get_model
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
    rows = show_engine(name, spec, parse_bytes(memory, "--memory"), _parsed(option or []))
    table = Table(title=f"{name}, {model}, {memory}", show_header=False)
    for label, text in rows:
        table.add_row(label, text)
    Console().print(table)


def _parsed(options: list[str]) -> dict[str, Any]:
    given = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise UserError("--option", f"{option!r} is not allowed; allowed: key=value")
        try:
            given[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError("--option", f"{value!r} is no YAML value") from None
    return given
