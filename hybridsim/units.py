"""Numbers as people write them: sizes (`8GiB`, `500MB`, `1024`), both ways, and shares."""

import re
from typing import Literal

from hybridsim.errors import UserError

UNLIMITED: Literal["unlimited"] = "unlimited"  # for a memory that nothing fills

_FACTORS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*$")


def parse_bytes(value: object, place: str, *also: str) -> int:
    """Bytes from an int or a text with a unit; `place` names the config key in errors.

    also: words that the key takes too, for the error.
    """
    sizes = "a positive size such as 8GiB, 500MB or a number of bytes"
    allowed = ", or ".join([sizes, *also])
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise UserError(place, f"{value!r} is not a size; allowed: {allowed}")
    match = _SIZE.match(str(value))
    if match is None or match[2].upper() not in _FACTORS:
        raise UserError(place, f"{value!r} is not a size; allowed: {allowed}")
    size = float(match[1]) * _FACTORS[match[2].upper()]
    if not 0 < size < 2**62:
        raise UserError(place, f"{value!r} is out of range; allowed: {allowed}")
    return int(size)


def format_bytes(size_bytes: float) -> str:
    """`18.8 MiB`: the largest binary unit that keeps the number at least 1."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def percent(share: float) -> str:
    """`12.34 %`"""
    return f"{100 * share:.2f} %"
