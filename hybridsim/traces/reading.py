"""Opens trace files. Knows compression, lines and JSON, but no format."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from hybridsim.errors import UserError
from hybridsim.traces.row import Row

Progress = Callable[[int, int], None]
"""Called with (bytes of the file read so far, bytes of the file)."""

_BOM = b"\xef\xbb\xbf"
_CUT_OFF = "the file ends in the middle of its data; is the copy complete?"


@dataclass(slots=True)
class Notes:
    """What a reader has to say about a trace; filled while it reads.

    `names`: content id -> name, where the trace has names.
    """

    dropped: dict[str, int] = field(default_factory=dict)
    assumptions: list[str] = field(default_factory=list)
    has_content: bool = True
    names: dict[int, str] = field(default_factory=dict)
    _endings: list[Callable[[], None]] = field(default_factory=list)

    def at_end(self, note: Callable[[], None]) -> None:
        """Call `note` when no more requests are read: at the file's end, or at `first`.

        A reader cannot do it behind its own loop, which a cut trace never leaves.
        """
        self._endings.append(note)

    def finish(self) -> None:
        """Make the notes that had to wait for the last request."""
        while self._endings:
            self._endings.pop(0)()

    def drop(self, reason: str, count: int = 1) -> None:
        """Count `count` records left out for `reason`."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def assume(self, sentence: str) -> None:
        """Keep a sentence that a user must know before believing a number (once)."""
        if sentence not in self.assumptions:
            self.assumptions.append(sentence)


@dataclass(slots=True)
class Source:
    """Where a reader reads from: a path, a place for notes, and seeded randomness."""

    path: Path
    notes: Notes
    seed: int = 0
    progress: Progress | None = None

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, so that one option never shifts another."""
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])

    def rows(self, path: Path | None = None) -> Iterator[Row]:
        """The JSON objects of a JSONL file (`path`, or the source's own), blank lines left out."""
        path = path or self.path
        for line_number, line in self.lines(path):
            yield Row(path, line_number, _parse_object(path, line_number, line))

    def lines(self, path: Path | None = None) -> Iterator[tuple[int, bytes]]:
        """Lines, numbered from 1, of a plain, .gz or .xz file; blank ones count as dropped."""
        path = path or self.path
        with _open(path) as raw, _inflated(raw, path) as stream:
            size_bytes = path.stat().st_size
            for line_number, line in _numbered(stream, path):
                if self.progress is not None and line_number % 64 == 0:
                    self.progress(raw.tell(), size_bytes)
                if line_number == 1:
                    line = line.removeprefix(_BOM)
                if line.strip():
                    yield line_number, line
                elif line:
                    self.notes.drop("blank line")


def _open(path: Path) -> IO[bytes]:
    try:
        if not path.is_file() and path.exists() and not path.is_dir():
            allowed = "a plain file, since it may be read more than once"
            raise UserError(str(path), f"is a device or a pipe; allowed: {allowed}")
        return path.open("rb")
    except FileNotFoundError:
        raise UserError(str(path), "no such file; allowed: an existing trace file") from None
    except OSError as error:  # a folder, a missing permission, a name that is too long
        found = f"cannot be read as a file ({error.strerror})"
        raise UserError(str(path), f"{found}; allowed: a trace file") from None


def _inflated(raw: IO[bytes], path: Path) -> IO[bytes]:
    """The decompressed stream, by the file's first bytes and not by its name."""
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.open(raw, "rb")  # type: ignore[return-value]
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.open(raw, "rb")
    if path.suffix in (".gz", ".xz") and magic:
        raise UserError(str(path), f"is named {path.suffix} but is not compressed that way")
    return raw


def _numbered(stream: IO[bytes], path: Path) -> Iterator[tuple[int, bytes]]:
    line_number = 0
    try:
        for line in stream:
            line_number += 1
            yield line_number, line
    except (EOFError, lzma.LZMAError, zlib.error, OSError) as error:
        place = f"{path}:{line_number + 1}"
        detail = _CUT_OFF if isinstance(error, EOFError) else f"cannot be decompressed ({error})"
        raise UserError(place, detail) from None


def _parse_object(path: Path, line_number: int, line: bytes) -> dict[str, Any]:
    place = f"{path}:{line_number}"
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(place, _why_not_json(line, str(error))) from None
    if not isinstance(value, dict):
        found = type(value).__name__
        raise UserError(place, f"holds a JSON {found}; allowed: one JSON object a line")
    return value


def _why_not_json(line: bytes, error: str) -> str:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as bad:
        return f"byte {line[bad.start]:#04x} at column {bad.start + 1} is not UTF-8 text"
    if not line.endswith(b"\n"):
        return f"the last line is not a complete JSON object; {_CUT_OFF}"
    start = line[:40].decode("utf-8", errors="replace").rstrip()
    return f"not JSON ({error}): {start!r}; allowed: one JSON object a line"
