"""`ragpulse`: a week of a RAG service. The path is the folder of its six files.

`0_trace.jsonl` lists content ids per kind; files 1 to 5 give each id's length in tokens. An id is
content wherever it stands, so prefixes are matched in the order in which the prompt is put
together. Timestamps are texts of seconds, and the file is out of order.
"""

from collections.abc import Iterator

import numpy as np
from pydantic import Field, field_validator

from hybridsim.errors import UserError
from hybridsim.request import Request, Spans
from hybridsim.traces.arrivals import in_arrival_order
from hybridsim.traces.options import TraceOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Row

# kind in the trace -> (file of lengths, key of the id in it), in the assumed order of the prompt
KINDS = {
    "sys_prompt": ("1_sys_prompt.jsonl", "sys_prompt_id"),
    "passages_ids": ("2_passages.jsonl", "passage_id"),
    "history": ("3_history.jsonl", "history_id"),
    "web_search": ("5_web_search.jsonl", "web_search_id"),
    "user_input": ("4_user_input.jsonl", "user_input_id"),
}
TRACE_FILE = "0_trace.jsonl"


class Options(TraceOptions):
    """Options of `ragpulse`."""

    order: tuple[str, ...] = Field(
        default=tuple(KINDS), description="the kinds of segments in the order of the prompt"
    )

    @field_validator("order")
    @classmethod
    def _all_kinds_once(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if sorted(order) != sorted(KINDS):
            raise ValueError(f"allowed: each of {', '.join(KINDS)} once")
        return order


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of the folder, sorted by arrival."""
    if not source.path.is_dir():
        raise UserError(str(source.path), f"is no folder; allowed: the folder with {TRACE_FILE}")
    lengths = _lengths(source)
    requests = [
        _request(row, index, lengths, options)
        for index, row in enumerate(source.rows(source.path / TRACE_FILE))
    ]
    source.notes.assume(f"Prompts are put together in the order {', '.join(options.order)}.")
    source.notes.assume(
        "input_length exceeds the segments by 6 to 12 template tokens; they stand at the end, "
        "without content."
    )
    yield from in_arrival_order(requests)


def _lengths(source: Source) -> dict[int, int]:
    """Tokens of every content id of every kind."""
    lengths: dict[int, int] = {}
    for file_name, key in KINDS.values():
        for row in source.rows(source.path / file_name):
            content_id = row.integer(key, below=2**62)
            if content_id in lengths:
                raise row.error(f"{key} {content_id} occurs twice; allowed: ids of one meaning")
            lengths[content_id] = row.integer("token_length", 1)
    return lengths


def _request(row: Row, index: int, lengths: dict[int, int], options: Options) -> Request:
    kinds = row.fields.get("hash_ids")
    if not isinstance(kinds, dict):
        raise row.wrong("hash_ids", f"an object with lists {', '.join(KINDS)}")
    part = row.sub(kinds)
    ids = np.concatenate([part.ids(kind) for kind in options.order])
    known = _known(row, ids.tolist(), lengths)
    num_tokens = row.integer("input_length", 1)
    num_known = known.num_tokens
    if num_known > num_tokens:
        raise row.error(
            f"input_length is {num_tokens}; allowed: at least {num_known}, the sum of the segments"
        )
    return Request(
        str(index),
        Spans(known.ids, known.ends, num_tokens),
        Spans.unknown(row.integer("output_length")),
        arrival_s=_seconds(row),
        session_id=row.text("session_id"),
        marks=_part_ends(part, lengths, options) if "layout" in options.marks else (),
    )


def _part_ends(part: Row, lengths: dict[int, int], options: Options) -> tuple[int, ...]:
    """Where the segments of each kind end."""
    kinds = [sum(lengths[x] for x in part.ids(kind).tolist()) for kind in options.order]
    return tuple(sorted({int(end) for end in np.cumsum(kinds)} - {0}))


def _known(row: Row, ids: list[int], lengths: dict[int, int]) -> Spans:
    try:
        return Spans.of([(content_id, lengths[content_id]) for content_id in ids])
    except KeyError as error:
        files = ", ".join(name for name, _ in KINDS.values())
        raise row.error(f"hash_ids holds {error.args[0]}; allowed: an id of {files}") from None


def _seconds(row: Row) -> float:
    value = row.fields.get("timestamp")
    if isinstance(value, str):
        try:
            row = row.sub({**row.fields, "timestamp": float(value)})
        except ValueError:
            raise row.wrong("timestamp", 'seconds, as a number or a text such as "82"') from None
    return row.number("timestamp")
