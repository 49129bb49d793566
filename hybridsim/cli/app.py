"""The root command: version, sub-commands, and the one place where a UserError becomes exit 2."""

import sys
from importlib import import_module
from typing import Annotated, NoReturn

import typer

from hybridsim import __version__
from hybridsim.errors import UserError, printable, shorten

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
        _refuse(str(error))
    except MemoryError as error:
        _refuse(f"not enough memory ({error}); allowed: a smaller input")
    except OSError as error:  # the machine's word about a file that nobody expected
        _refuse(f"{error.filename or 'the output'}: {error.strerror or error}")


def _refuse(message: str) -> NoReturn:
    """Tell what is wrong and end with exit code 2."""
    typer.echo(printable(shorten(f"error: {message}", _MOST_LETTERS)), err=True)
    sys.exit(2)
