"""Fingerprints of all that a run reads: two runs are the same where config and these are equal.

It knows no key that names a file: any text of the config that is the path of one counts. A text
that only looks like a path costs a needless run after an edit, never a stale result. Files that
ship with hybridsim count where the run's prices come from them, and so does hybridsim's own code.
"""

from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import hybridsim
from hybridsim.build import shipped_files
from hybridsim.config import RunConfig

_PACKAGE = Path(hybridsim.__file__).parent
# What no run imports, so that an edit there changes no number.
APART = frozenset({"cli", "kernels", "plan", "report"})


def fingerprints(config: RunConfig) -> dict[str, str]:
    """A digest of the content of each file or folder that the config names, by its text there.

    Shipped files go by their path from the package on, `hybridsim/cost/ceilings.json`.
    """
    texts = _texts([config.trace.model_dump(), config.model, config.gpu, config.engine.options])
    found = {text: _digest_of(Path(text)) for text in texts}
    for path in shipped_files(config):
        found[path.relative_to(_PACKAGE.parent).as_posix()] = _digest_of(path)
    return {text: digest for text, digest in found.items() if digest}


@cache
def code_digest() -> str:
    """Of all source files that can decide the numbers of a run; read once a process."""
    digest = blake2b(digest_size=8)
    for file in sorted(_PACKAGE.rglob("*.py")):
        name = file.relative_to(_PACKAGE)
        if name.parts[0] not in APART:
            digest.update(f"{name.as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _digest_of(path: Path) -> str | None:
    """Of a file's content, or of the files right inside a folder; None where there is neither."""
    try:
        if path.is_file():
            return _files_digest((path,))
        return _files_digest(sorted(x for x in path.iterdir() if x.is_file()))
    except OSError:
        return None


def _files_digest(files: Any) -> str:
    digest = blake2b(digest_size=16)
    for file in files:
        stat = file.stat()
        digest.update(f"{file.name}\0{_content(file, stat.st_size, stat.st_mtime_ns)}\0".encode())
    return digest.hexdigest()


@cache
def _content(file: Path, size_bytes: int, modified_ns: int) -> str:
    """Read once a process, as long as size and time of the file stay."""
    digest = blake2b(digest_size=16)
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
