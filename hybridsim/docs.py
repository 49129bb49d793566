"""Parts of the documentation that are made from code: between two marks of a Markdown file."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hybridsim.errors import UserError
from hybridsim.files import read_whole, write_whole
from hybridsim.terminal import errors_in_one_line


@dataclass(frozen=True, slots=True)
class MadePart:
    """What stands between the lines `start` and `end`; `make` gives it as Markdown."""

    start: str
    end: str
    make: Callable[[], str]

    def renewed(self, text: str) -> str:
        """The text with its made part made anew; ValueError where a mark is missing."""
        before, start, rest = text.partition(self.start)
        _, end, after = rest.partition(self.end)
        if not start or not end:
            raise ValueError(f"no lines {self.start!r} and {self.end!r}")
        return f"{before}{start}\n{self.make()}\n{end}{after}"

    def main(self) -> None:
        """Renew the page that the command line names; a mistake is one line and exit code 2."""
        parser = argparse.ArgumentParser(description=f"Renew a page from {self.start!r} on.")
        parser.add_argument("page", type=Path, help="Markdown file that has this part")
        path: Path = parser.parse_args().page
        with errors_in_one_line():
            text = read_whole(path)
            try:
                renewed = self.renewed(text.decode())
            except ValueError as error:
                raise UserError(str(path), str(error)) from None
            write_whole(path, renewed.encode())


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A line a row, with bars within cells kept as text."""
    lines = [_line(heads), "|" + "---|" * len(heads)]
    return "\n".join([*lines, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
