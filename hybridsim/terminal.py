"""Where commands print their tables, and how programs beside them tell a user's mistake."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hybridsim.errors import UserError, printable

if TYPE_CHECKING:
    from rich.console import Console

EXIT_INTERRUPTED = 130  # what shells report for Ctrl-C


def wide_console(width: int, *, highlight: bool = True) -> "Console":
    """Standard output; of `width` columns where it is no terminal, so that no cell is cut."""
    from rich.console import Console  # late: --help must not wait for it

    console = Console(highlight=highlight)
    return console if console.is_terminal else Console(width=width, highlight=highlight)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turns a UserError of the block into a line on standard error and exit code 2.

    For programs started by `python -m`; `hybridsim` itself does so in `cli/app.py`.
    """
    try:
        yield
    except UserError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        sys.exit(2)
