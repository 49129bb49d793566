"""Guesses a file's format from its name and first lines; used by the command line only."""

from collections.abc import Iterator
from itertools import islice
from os.path import isdir
from pathlib import Path
from typing import Any

from hybridsim.errors import UserError
from hybridsim.traces import azure, burstgpt, ragpulse
from hybridsim.traces.reading import Notes, Source

_LOOK_AT = 200

# field that gives a JSONL format away -> format; the first one found counts
_MARKS = {
    "chat_id": "bailian",
    "requests": "weka",
    "input_tokens": "marconi",
    "tokens": "tokens",
    "messages": "messages",
    "hash_ids": "mooncake",
    "prompt": "segments",
}


def detect_format(path: str | Path) -> str:
    """The name of the format of `path`; UserError `trace.format` where it looks like none."""
    path = Path(path)
    if isdir(path):
        if (path / ragpulse.TRACE_FILE).is_file():
            return "ragpulse"
        raise UserError(
            str(path), f"is a folder without {ragpulse.TRACE_FILE}; allowed: a trace file"
        )
    source = Source(path, Notes())
    first = next(source.lines(), None)
    if first is None:
        raise UserError(str(path), "is empty; allowed: a trace file")
    return _of_table(first[1]) or _of_rows(path, source)


def _of_table(line: bytes) -> str | None:
    columns = {cell.strip() for cell in line.decode("utf-8", errors="replace").split(",")}
    if set(azure.COLUMNS) <= columns or set(azure.VIDUR_COLUMNS) <= columns:
        return "azure"
    return "burstgpt" if set(burstgpt.COLUMNS) <= columns else None


def _of_rows(path: Path, source: Source) -> str:
    rows = (row.fields for row in islice(source.rows(), _LOOK_AT))
    first = next(rows)
    for mark, name in _MARKS.items():
        if mark in first:
            is_dialect = name == "mooncake" and "session_id" in first and _adds(rows)
            return "mooncake-sessions" if is_dialect else name
    found = ", ".join(list(first)[:10]) or "none"
    raise UserError(
        "trace.format",
        f"{path} looks like no known format (fields: {found}); allowed: name the format",
    )


def _adds(rows: Iterator[dict[str, Any]]) -> bool:
    """Whether lines list increments, as in AIPerf's dialect."""
    return any("session_id" in row and "delay" in row for row in rows)
