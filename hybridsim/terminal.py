"""Where commands print their tables."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def wide_console(width: int, *, highlight: bool = True) -> "Console":
    """Standard output; of `width` columns where it is no terminal, so that no cell is cut."""
    from rich.console import Console  # late: --help must not wait for it

    console = Console(highlight=highlight)
    return console if console.is_terminal else Console(width=width, highlight=highlight)
