"""Parts of the documentation that are made from code: between two marks of a Markdown file."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path


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
        """Renew the file that the command line names."""
        path = Path(sys.argv[1])
        path.write_text(self.renewed(path.read_text(encoding="utf-8")), encoding="utf-8")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A line a row, with bars within cells kept as text."""
    lines = [_line(heads), "|" + "---|" * len(heads)]
    return "\n".join([*lines, *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
