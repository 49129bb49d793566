"""Golden files: inputs and an engine's answers, small enough to commit and replay anywhere.

Tokens are stored as runs of consecutive ids; long lists of nodes as their digest.
"""

import json
import lzma
from pathlib import Path
from typing import Any
from zlib import crc32

Job = dict[str, Any]


def pack_tokens(tokens: list[int]) -> list[int]:
    """`[first, length, first, length, ...]` of the runs of consecutive ids."""
    runs: list[int] = []
    for token in tokens:
        if runs and token == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [token, 1]
    return runs


def unpack_tokens(runs: list[int]) -> list[int]:
    """The inverse of `pack_tokens`."""
    tokens: list[int] = []
    for first, length in zip(runs[::2], runs[1::2], strict=True):
        tokens.extend(range(first, first + length))
    return tokens


def pack_trace(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**row, "tokens": pack_tokens(row["tokens"]), "output": pack_tokens(row["output"])}
        for row in trace
    ]


def unpack_trace(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**row, "tokens": unpack_tokens(row["tokens"]), "output": unpack_tokens(row["output"])}
        for row in trace
    ]


def digest(value: object) -> int:
    """A number that changes with anything in `value`, by its JSON text."""
    return crc32(json.dumps(value, separators=(",", ":")).encode())


def write(path: Path, jobs: list[Job]) -> None:
    """`jobs` as xz-compressed JSON."""
    text = json.dumps(jobs, separators=(",", ":")).encode()
    path.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))


def read(path: Path) -> list[Job]:
    jobs: list[Job] = json.loads(lzma.decompress(path.read_bytes()))
    return jobs
