"""`tokens`: token ids, one request a line: `{"id", "tokens": [...], "output": [...] | 200}`.

Optional fields as in `segments`. A token id is its own content id; every token is a span.
"""

from collections.abc import Iterator

from hybridsim.request import Int64Array, Request, Spans
from hybridsim.traces.options import TraceOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Row
from hybridsim.traces.segments import FIELDS as SEGMENT_FIELDS
from hybridsim.traces.segments import OwnLines
from hybridsim.traces.spans import GridEnds

FIELDS = tuple("tokens" if name == "prompt" else name for name in SEGMENT_FIELDS)
_SINGLE = GridEnds(1)


def read(source: Source, options: TraceOptions) -> Iterator[Request]:
    """Requests of a tokens file, in its order."""
    lines = OwnLines(FIELDS, sort=options.sort)
    for row in source.rows():
        ids = row.ids("tokens")
        if not len(ids):
            raise row.wrong("tokens", "at least one token id")
        yield lines.request(row, token_spans(ids), token_output(row, "output"))


def token_spans(ids: Int64Array) -> Spans:
    """One span a token; the ends are a view of one array that all such sequences share."""
    return Spans(ids, _SINGLE.ends(len(ids)), len(ids))


def token_output(row: Row, key: str) -> Spans:
    """The output: a list of token ids, or only their number."""
    if isinstance(row.fields.get(key), list):
        return token_spans(row.ids(key))
    if key not in row.fields or isinstance(row.fields[key], int):
        return Spans.unknown(row.integer(key))
    raise row.wrong(key, "a list of token ids or a number of tokens")
