"""One record of a trace file: checks its fields and names its place. Knows no format."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from hybridsim.errors import UserError, shorten
from hybridsim.request import Int64Array

MAX_TOKENS = 2**40  # of a prompt; sums over a trace must fit 64 bits


def shown(value: object) -> str:
    """A value of a trace for a message, in at most 60 characters."""
    try:
        return shorten(repr(value))
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"


@dataclass(slots=True)
class Row:
    """One JSON object of a trace file, and the place to name when a field of it is wrong."""

    path: Path
    line_number: int
    fields: dict[str, Any]

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line_number}"

    def error(self, message: str) -> UserError:
        """A UserError at this line."""
        return UserError(self.place, message)

    def wrong(self, key: str, allowed: str) -> UserError:
        """The error for a field with a bad value or none at all."""
        if key not in self.fields:
            present = ", ".join(map(str, list(self.fields)[:12])) or "none"
            return self.error(f"{key} is missing; allowed: {allowed} (fields found: {present})")
        return self.error(f"{key} is {shown(self.fields[key])}; allowed: {allowed}")

    def sub(self, fields: dict[str, Any]) -> "Row":
        """A nested object on the same line."""
        return Row(self.path, self.line_number, fields)

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.fields.get(key) is not None

    def integer(self, key: str, minimum: int = 0, below: int = MAX_TOKENS) -> int:
        """A whole number from `minimum` on; floats such as 3.0 are not whole numbers here."""
        value = self.fields.get(key)
        if type(value) is int and minimum <= value < below:
            return value
        raise self.wrong(
            key, f"a whole number, at least {minimum} and below 2^{below.bit_length() - 1}"
        )

    def number(self, key: str, minimum: float = 0.0) -> float:
        """A finite number of at least `minimum`."""
        value = self.fields.get(key)
        if (
            isinstance(value, int | float)
            and type(value) is not bool
            and minimum <= value < float("inf")
        ):
            return float(value)
        raise self.wrong(key, f"a number, at least {minimum:g}")

    def text(self, key: str) -> str:
        """A text that is not empty; whole numbers count as texts (ids are written both ways)."""
        value = self.fields.get(key)
        if type(value) is int or (isinstance(value, str) and value):
            return str(value)
        raise self.wrong(key, "a text or a whole number")

    def items(self, key: str) -> list[Any]:
        """A JSON list."""
        value = self.fields.get(key)
        if isinstance(value, list):
            return value
        raise self.wrong(key, "a list")

    def canonical(self, value: Any) -> bytes:
        """`value`, a part of this line, as JSON that is equal for equal values."""
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:  # what the library can still read it cannot always write
            raise self.error("is nested too deeply; allowed: at most 250 levels") from None

    def ids(self, key: str) -> Int64Array:
        """A list of whole numbers from 0 as int64 array `[n]`; may be empty."""
        array = as_ids(self.items(key))
        if array is None:
            raise self.wrong(key, "a list of whole numbers, each at least 0")
        return array


def as_ids(values: list[Any]) -> Int64Array | None:
    """`values` as int64 array, None where one of them is no whole number of at least 0."""
    if not values:
        return np.empty(0, dtype=np.int64)
    try:
        array = np.array(values)
    except (ValueError, OverflowError):  # ragged lists, giant numbers
        return None
    if array.ndim != 1 or array.dtype != np.int64 or int(array.min()) < 0:
        return None
    return array


@dataclass(slots=True)
class Clock:
    """Checks that times do not go backwards and that their unit is the one expected.

    `factor_s` is one unit of the file in seconds. With `may_turn_back` the order is not checked.
    """

    unit: str
    factor_s: float
    may_turn_back: bool = False
    last: float = float("-inf")

    def seconds(self, row: Row, key: str, minimum: float = 0.0) -> float:
        """The time of `row` in seconds."""
        value = row.number(key, minimum)
        if value < self.last and not self.may_turn_back:
            raise row.error(
                f"{key} is {shown(row.fields[key])}, before the line above ({self.last:g}); "
                f"allowed: {self.unit} in rising order (or set trace.sort to true)"
            )
        self.last = max(self.last, value)
        return value * self.factor_s
