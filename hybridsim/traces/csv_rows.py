"""CSV files with a header line, as rows with places; shared by the lengths-only formats."""

import csv
from collections.abc import Iterator

from hybridsim.errors import UserError
from hybridsim.traces.reading import Source
from hybridsim.traces.row import MAX_TOKENS, Row


def csv_rows(source: Source, required: tuple[str, ...]) -> Iterator[Row]:
    """Rows of the file as texts by column name. A UserError names missing columns and bad rows."""
    header: list[str] | None = None
    for line_number, line in source.lines():
        place = f"{source.path}:{line_number}"
        try:
            cells = next(csv.reader([line.decode("utf-8").rstrip("\r\n")]))
        except csv.Error as bad:
            raise UserError(place, f"is no line of a CSV file ({bad})") from None
        except UnicodeDecodeError as bad:
            raise UserError(
                place, f"byte {line[bad.start]:#04x} at column {bad.start + 1} is not UTF-8 text"
            ) from None
        if header is None:
            header = [cell.strip() for cell in cells]
            missing = [name for name in required if name not in header]
            if missing:
                raise UserError(
                    place,
                    f"column {missing[0]!r} is missing; allowed: {', '.join(required)} "
                    f"(columns found: {', '.join(header)})",
                )
            continue
        if len(cells) != len(header):
            raise UserError(
                place, f"has {len(cells)} cells; allowed: {len(header)}, as the header (is it cut?)"
            )
        yield Row(source.path, line_number, dict(zip(header, cells, strict=True)))


def whole(row: Row, key: str, minimum: int = 0) -> int:
    """A cell as whole number of at least `minimum`."""
    text = str(row.fields.get(key, "")).strip()
    # the length first: Python refuses to read thousands of digits
    if text.isdecimal() and len(text) <= 15 and minimum <= int(text) < MAX_TOKENS:
        return int(text)
    raise row.wrong(key, f"a whole number, at least {minimum} and below 2^40")


def seconds(row: Row, key: str) -> float:
    """A cell as number of seconds, at least 0."""
    try:
        value = float(str(row.fields.get(key, "")))
    except ValueError:
        raise row.wrong(key, "a number of seconds") from None
    if not 0 <= value < float("inf"):
        raise row.wrong(key, "a number of seconds, at least 0")
    return value
