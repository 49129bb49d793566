"""What commands on curves share: round sizes, tables, CSV files and notes on what is left out."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from hybridsim.analysis.steps import Curve
from hybridsim.errors import UserError
from hybridsim.files import make_folder, written_whole
from hybridsim.request import Int64Array

_PER_OCTAVE = 16
MOST_ROWS = 16


def curve_sizes(curves: Iterable[Curve]) -> Int64Array:
    """Sizes over the range in which the curves move, evenly spaced in log 2, powers of 2 too."""
    ranges = [curve.range_bytes for curve in curves if curve.range_bytes[1]]
    if not ranges:
        return np.array([1], dtype=np.int64)
    low, high = max(1, min(r[0] for r in ranges)), max(r[1] for r in ranges)
    octaves = np.log2(high / low) if high > low else 1.0
    spaced = log_spaced(low, high, int(octaves * _PER_OCTAVE) + 2)
    powers = 2 ** np.arange(int(np.log2(low)), int(np.log2(high)) + 1, dtype=np.int64)
    return np.unique(np.concatenate([spaced, powers]))


def log_spaced(low: int, high: int, count: int) -> Int64Array:
    spaced = np.geomspace(max(low, 1), max(high, low, 1), count)
    return np.unique(np.ceil(spaced).astype(np.int64))


def round_sizes(sizes: Int64Array) -> list[int]:
    """Powers of two within the range, thinned to what fits a screen."""
    powers = [2**e for e in range(int(sizes[0]).bit_length(), int(sizes[-1]).bit_length() + 1)]
    return powers[-MOST_ROWS:]


def tell_refusals(refusals: list[UserError], has_result: bool, console: Console) -> None:
    """Name what is left out; raises the first refusal where nothing else is left."""
    if refusals and not has_result:
        raise refusals[0]
    for error in refusals:
        console.print(f"left out: {error}", markup=False, highlight=False)


def write_rows(path: Path, rows: Iterable[Sequence[object]], console: Console) -> None:
    """A CSV file; its folder is made where it is not there yet."""
    make_folder(path.parent, "--out")
    with written_whole(path) as temporary, temporary.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    console.print(f"wrote {path}", markup=False, highlight=False)
