"""The root command: version, sub-commands, and the one place where a UserError becomes exit 2."""

import sys
from importlib import import_module
from typing import Annotated

import typer

from hybridsim import __version__
from hybridsim.errors import UserError, shorten

app = typer.Typer(
    name="hybridsim",
    help="Prefix-cache simulator for hybrid LLMs. "
    "Example: hybridsim run experiments/quickstart.yaml",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_MOST_LETTERS = 4000  # of an error: a screen, whatever was put into the value that it names
# Every module has `register(app)`, which adds its commands.
COMMAND_MODULES = ("run", "trace", "model", "curve", "bound", "plan", "engine", "cost", "calibrate")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hybridsim {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of hybridsim itself."""


for _module in COMMAND_MODULES:
    import_module(f"hybridsim.cli.{_module}").register(app)


def main() -> None:
    """Entry point of the `hybridsim` script."""
    try:
        app()
    except UserError as error:
        typer.echo(shorten(f"error: {error}", _MOST_LETTERS), err=True)
        sys.exit(2)
    except MemoryError as error:
        typer.echo(f"error: not enough memory ({error}); allowed: a smaller input", err=True)
        sys.exit(2)
    except OSError as error:  # the machine's word about a file that nobody expected
        place = error.filename or "a file"
        typer.echo(f"error: {place}: {error.strerror or error}", err=True)
        sys.exit(2)
