"""`mooncake-sessions`: AIPerf's dialect of Mooncake, in which a line lists only what a turn adds.

`{"session_id", "input_length", "output_length", "hash_ids"}` with `timestamp` (ms) on a session's
first line and `delay` (ms after the end of the turn before) on later ones. The whole prompt is
accumulated: the prompt and the output of the turn before, and then the increment. That is how
AIPerf counts and replays it (its generator adds last input, last output and new tokens).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import Field

from hybridsim.request import Request, Spans
from hybridsim.traces.arrivals import in_arrival_order
from hybridsim.traces.options import GridOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Row

# Outputs get content ids above all block ids, so that the next turn can name them.
_FIRST_OUTPUT_ID = 1 << 61


class Options(GridOptions):
    """Options of `mooncake-sessions`."""

    history: Literal["with_outputs", "prompts_only"] = Field(
        default="with_outputs", description="what a later turn's prompt holds of earlier turns"
    )


@dataclass(slots=True)
class _Turn:
    row: Row
    num_spans: int
    num_prompt_tokens: int
    num_output_tokens: int
    output_id: int
    arrival_s: float
    delay_s: float


@dataclass(slots=True)
class _Session:
    """Spans of the longest prompt so far, with the last output; turns are cuts of it."""

    ids: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    num_tokens: int = 0
    turns: list[_Turn] = field(default_factory=list)

    def append(self, content_id: int, num_tokens: int) -> None:
        self.ids.append(content_id)
        self.lengths.append(num_tokens)
        self.num_tokens += num_tokens


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of an AIPerf-style Mooncake file, sorted by arrival; it holds the whole trace."""
    yield from read_rows(source, options, source.rows())


def read_rows(source: Source, options: Options, rows: Iterable[Row]) -> Iterator[Request]:
    """The same from rows that are already open."""
    sessions: dict[str, _Session] = {}
    for row in rows:
        _add_turn(sessions.setdefault(row.text("session_id"), _Session()), row, options)
    source.notes.assume(
        "A line's input_length and hash_ids are what its turn adds; prompts are accumulated, "
        + ("earlier outputs included." if options.history == "with_outputs" else "prompts only.")
    )
    source.notes.assume(
        "A later turn's arrival is the earliest possible one: the turn before takes no time."
    )
    requests: list[Request] = []
    for session_id, session in sessions.items():
        requests += _requests(session_id, session, len(requests))
    yield from in_arrival_order(requests)


def _add_turn(session: _Session, row: Row, options: Options) -> None:
    num_new = row.integer("input_length", 1)
    num_output = row.integer("output_length")
    block = row.integer("block_size", 1) if row.has("block_size") else options.block_size
    ids = row.ids("hash_ids")
    if len(ids) != -(-num_new // block):
        raise row.error(
            f"hash_ids has {len(ids)} ids for input_length {num_new}; allowed: "
            f"{-(-num_new // block)} (one for each started block of {block} tokens)"
        )
    for number, content_id in enumerate(ids.tolist()):
        session.append(content_id, min(block, num_new - number * block))
    arrival_s, delay_s = _times(session, row)
    output_id = _FIRST_OUTPUT_ID + row.line_number
    known = options.history == "with_outputs"
    turn = _Turn(
        row, len(session.ids), session.num_tokens, num_output,
        output_id if known else -1, arrival_s, delay_s,
    )  # fmt: skip
    session.turns.append(turn)
    if known and num_output:
        session.append(output_id, num_output)


def _times(session: _Session, row: Row) -> tuple[float, float]:
    if not session.turns:
        if row.has("delay") and not row.has("timestamp"):
            raise row.wrong("timestamp", "milliseconds on the first line of a session")
        return row.number("timestamp") / 1000, 0.0
    last_s = session.turns[-1].arrival_s
    if row.has("delay"):
        delay_s = row.number("delay") / 1000
        return last_s + delay_s, delay_s
    if not row.has("timestamp"):
        raise row.wrong("delay", "milliseconds after the turn before, or a timestamp")
    arrival_s = row.number("timestamp", last_s * 1000) / 1000
    return arrival_s, arrival_s - last_s


def _requests(session_id: str, session: _Session, first_index: int) -> list[Request]:
    ids = np.array(session.ids, dtype=np.int64)
    ends = np.cumsum(session.lengths, dtype=np.int64)
    requests = []
    for number, turn in enumerate(session.turns):
        prompt = Spans(ids[: turn.num_spans], ends[: turn.num_spans], turn.num_prompt_tokens)
        known = turn.output_id >= 0 and turn.num_output_tokens > 0
        output = (
            Spans.of([(turn.output_id, turn.num_output_tokens)])
            if known
            else Spans.unknown(turn.num_output_tokens)
        )
        requests.append(
            Request(
                f"{session_id}/{number}",
                prompt,
                output,
                arrival_s=turn.arrival_s,
                session_id=session_id,
                previous=first_index + number - 1 if number else None,
                delay_s=turn.delay_s,
            )
        )
    return requests
