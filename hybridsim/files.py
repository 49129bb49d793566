"""Files read and written as a whole or not at all, with the machine's refusals as errors."""

import csv
import io
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hybridsim.errors import UserError, shorten


class WriteError(UserError):
    """The machine does not take a file: a full disk, a missing permission. `place` is the file."""


def read_whole(path: Path, place: str | None = None) -> bytes:
    """The content of a file, or of a pipe to its end; UserError at `place`, or at the path.

    A device is refused: many never end.
    """
    shown = shorten(str(path), 200)
    here, name = (shown, "") if place is None else (place, f"{shown!r} ")
    try:
        if stat.S_ISCHR(path.stat().st_mode):
            raise UserError(here, f"{name}is a device; allowed: a file")
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a ValueError is a zero byte in the path
        why = getattr(error, "strerror", None) or error
        raise UserError(here, f"{name}cannot be read: {why}; allowed: a file") from None


def read_json(path: Path, place: str | None = None) -> Any:
    """The value that a JSON file holds; UserError at `place`, or at the path and its line."""
    content = read_whole(path, place)
    shown = shorten(str(path), 200)
    here, name = (shown, "") if place is None else (place, f"{shown!r} ")
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        line = f":{error.lineno}" if place is None else ""
        raise UserError(f"{here}{line}", f"{name}is not JSON: {error}") from None
    except (ValueError, RecursionError) as error:  # bytes that are no text; thousands of brackets
        raise UserError(here, f"{name}is not JSON: {shorten(str(error))}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an OSError of the block that writes `path` into a WriteError that names it."""
    try:
        yield
    except OSError as error:
        why = error.strerror or shorten(str(error))
        raise WriteError(str(path), f"cannot be written ({why})") from None


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it takes the name of `path` when all went well.

    A link is followed. Raises WriteError, for devices and pipes too, which a file would replace;
    whatever is raised, `path` keeps what it had before.
    """
    # os.path says False of names that are too long, where Path would raise an OSError
    if not path.name or os.path.isdir(path):
        raise WriteError(str(path), "is a folder; allowed: the path of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise WriteError(str(path), "is a device or a pipe; allowed: the path of a file")
    path = Path(os.path.realpath(path)) if os.path.islink(path) else path
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        with writing(path):
            yield temporary
            temporary.replace(path)
    finally:
        with suppress(OSError):  # it may never have been there, nor its folder
            temporary.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """The file has its old content or the new one, at any time. Raises WriteError."""
    with written_whole(path) as temporary:
        temporary.write_bytes(content)


def make_folder(path: Path, place: str) -> None:
    """Make a folder to write into, where it is not there yet; UserError at `place` otherwise."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(place, f"{str(path)!r} is not a folder; allowed: a folder") from None
    except OSError as error:
        raise UserError(place, f"{str(path)!r} cannot be made ({error.strerror})") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(place, f"{str(path)!r} cannot be written to; allowed: a folder of yours")


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """A line a row, the first its heads, made before any of it is written; see `write_whole`."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, text.getvalue().encode())
