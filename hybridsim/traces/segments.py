"""`segments`: the project's own format. Named runs of tokens, one request a line.

`{"id", "prompt": [["sys", 1500], ["u1", 700]], "output": [["a1", 200]] | 200}` and, optional,
`arrival_s`, `session`, `previous` (id of an earlier request), `delay_s`, `marks` (token positions),
`priority`, `grid_tokens`. Equal names are equal tokens and a shorter length is a prefix of the
longer. The last segment may have the name null: tokens of unknown content, which match nothing.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from hybridsim.request import Request, Spans
from hybridsim.traces.draws import Contents, Segments
from hybridsim.traces.options import TraceOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import MAX_TOKENS, Row, shown

FIELDS = (
    "id", "arrival_s", "session", "prompt", "output",
    "previous", "delay_s", "marks", "priority", "grid_tokens",
)  # fmt: skip
_SEGMENTS = 'a list of [name, length] pairs such as [["sys", 1500]]'


def read(source: Source, options: TraceOptions) -> Iterator[Request]:
    """Requests of a segments file, in its order."""
    contents = Contents(source.notes)
    lines = OwnLines(FIELDS, sort=options.sort)
    source.notes.has_content = False
    for row in source.rows():
        prompt = _segments(row, "prompt", contents)
        if not prompt.num_tokens:
            raise row.wrong("prompt", f"{_SEGMENTS}, with at least one token")
        source.notes.has_content |= len(prompt) > 0
        yield lines.request(row, prompt, _output(row, contents))


def _output(row: Row, contents: Contents) -> Spans:
    if isinstance(row.fields.get("output"), list):
        return _segments(row, "output", contents)
    if "output" not in row.fields or isinstance(row.fields["output"], int):
        return Spans.unknown(row.integer("output"))
    raise row.wrong("output", f"a number of tokens or {_SEGMENTS}")


def _segments(row: Row, key: str, contents: Contents) -> Spans:
    pairs: Segments = []
    segments = row.items(key)
    for index, segment in enumerate(segments):
        name, length = _segment(row, key, segment)
        if name is None:
            if index != len(segments) - 1:
                raise row.error(f"{key} names segment {index + 1} null; allowed: only the last one")
            known = contents.spans(pairs)
            return Spans(known.ids, known.ends, known.num_tokens + length)
        pairs.append((name, length))
    return contents.spans(pairs)


def _segment(row: Row, key: str, segment: Any) -> tuple[str | None, int]:
    if isinstance(segment, list) and len(segment) == 2:
        name, length = segment
        if isinstance(name, str | None) and type(length) is int and 1 <= length < MAX_TOKENS:
            return name, length
    raise row.error(f"{key} holds {shown(segment)}; allowed: [name, length], a text and at least 1")


class OwnLines:
    """Reads the fields that `segments` and `tokens` have in common."""

    def __init__(self, allowed: tuple[str, ...], *, sort: bool) -> None:
        self._allowed = allowed
        self._sort = sort
        self._last_s = float("-inf")
        self._index_of: dict[str, int] = {}
        self._count = 0

    def request(self, row: Row, prompt: Spans, output: Spans) -> Request:
        """The request of this line around its already read prompt and output."""
        unknown = set(row.fields) - set(self._allowed)
        if unknown:
            raise row.error(
                f"unknown field {shown(sorted(unknown)[0])}; allowed: {', '.join(self._allowed)}"
            )
        request_id = row.text("id")
        request = Request(
            request_id,
            prompt,
            output,
            arrival_s=self._arrival_s(row),
            session_id=row.text("session") if row.has("session") else None,
            grid_tokens=row.integer("grid_tokens", 1) if row.has("grid_tokens") else 1,
            previous=self._previous(row),
            delay_s=row.number("delay_s") if row.has("delay_s") else 0.0,
            marks=_marks(row, prompt.num_tokens + output.num_tokens),
            priority=row.integer("priority", -(2**31)) if row.has("priority") else 0,
        )
        self._index_of[request_id] = self._count
        self._count += 1
        return request

    def _arrival_s(self, row: Row) -> float | None:
        if not row.has("arrival_s"):
            if self._last_s >= 0:
                raise row.wrong("arrival_s", "seconds on every line, as on those above, or on none")
            return None
        if self._count and self._last_s < 0:
            raise row.wrong("arrival_s", "no arrival, as on the lines above, or one on every line")
        arrival_s = row.number("arrival_s")
        if arrival_s < self._last_s and not self._sort:
            raise row.error(
                f"arrival_s is {arrival_s:g}, before the line above ({self._last_s:g}); allowed: "
                "seconds in rising order (or set trace.sort to true)"
            )
        self._last_s = max(arrival_s, self._last_s)
        return arrival_s

    def _previous(self, row: Row) -> int | None:
        if not row.has("previous"):
            return None
        name = row.text("previous")
        if name not in self._index_of:
            raise row.error(
                f"previous is {shown(name)}; allowed: the id of a request on a line above"
            )
        return self._index_of[name]


def _marks(row: Row, num_tokens: int) -> tuple[int, ...]:
    if not row.has("marks"):
        return ()
    marks = row.ids("marks")
    if len(marks) and (marks[0] < 1 or marks[-1] > num_tokens or np.any(np.diff(marks) <= 0)):
        raise row.wrong("marks", f"rising token positions from 1 to {num_tokens}")
    return tuple(marks.tolist())
