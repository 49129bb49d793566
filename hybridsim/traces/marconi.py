"""`marconi`: token-id traces of the Marconi artifact, plain or .gz.

`{"session_id", "turn_id", "ts", "num_input_tokens", "num_output_tokens", "input_tokens",
"output_tokens"}`, sorted by `ts` in seconds; the input is the whole history.
"""

from collections.abc import Iterator

from hybridsim.request import Int64Array, Request
from hybridsim.traces.options import TraceOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Clock, Row
from hybridsim.traces.tokens import token_spans


def read(source: Source, options: TraceOptions) -> Iterator[Request]:
    """Requests of a Marconi file in its order. Turns of a session follow each other."""
    clock = Clock("seconds", 1.0, options.sort)
    last_of: dict[str, tuple[int, float]] = {}
    source.notes.assume("A turn's delay is its distance from the arrival of the turn before.")
    for index, row in enumerate(source.rows()):
        arrival_s = clock.seconds(row, "ts")
        session = row.text("session_id")
        previous, before_s = last_of.get(session, (None, arrival_s))
        last_of[session] = (index, arrival_s)
        yield Request(
            f"{session}/{row.integer('turn_id')}",
            token_spans(_ids(row, "input_tokens", "num_input_tokens", 1)),
            token_spans(_ids(row, "output_tokens", "num_output_tokens", 0)),
            arrival_s=arrival_s,
            session_id=session,
            previous=previous,
            delay_s=max(0.0, arrival_s - before_s),
        )


def _ids(row: Row, key: str, count_key: str, minimum: int) -> Int64Array:
    ids = row.ids(key)
    if len(ids) < minimum:
        raise row.wrong(key, "at least one token id")
    if row.integer(count_key) != len(ids):
        raise row.wrong(count_key, f"{len(ids)}, the number of {key}")
    return ids
