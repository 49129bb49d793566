"""`mooncake`: the FAST'25 release of Mooncake; ids of 512-token blocks, times in milliseconds.

`{"timestamp", "input_length", "output_length", "hash_ids"}`; optional `block_size`, `session_id`.
The partial last block has an id of its own (ceil rule) and is as long as its remainder.
Two formats go by this name: AIPerf's dialect lists only what a turn adds. It is recognised by its
`session_id` and `delay` fields and read as `mooncake-sessions`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from typing import Literal

from pydantic import Field

from hybridsim.request import Request, Spans
from hybridsim.traces import mooncake_sessions
from hybridsim.traces.arrivals import in_arrival_order
from hybridsim.traces.inference import with_sessions
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Clock, Row, shown
from hybridsim.traces.spans import ChainCheck, GridEnds

TICK_S = 3.0  # the release's conversation trace records arrivals about every 3,000 ms
_LOOK_AHEAD = 1000
_CHECK_UNIT_EVERY = 100
_MOST_REQUESTS_PER_S = 1000.0  # the release has 3 to 7; a file in seconds would seem to have 3,000


class Options(mooncake_sessions.Options):
    """Options of `mooncake`; `history` matters for AIPerf's dialect only."""

    jitter: bool = Field(
        default=False,
        description="add a seeded uniform [0, 3 s) to each arrival, to break up 3 s ticks",
    )
    infer_sessions: bool = Field(
        default=False, description="guess sessions: a prompt with all full blocks of another"
    )
    time_unit: Literal["auto", "ms", "s"] = Field(
        default="auto", description="unit of timestamps; auto: milliseconds, and checked"
    )


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of a Mooncake file in arrival order; it streams unless `jitter` is set."""
    rows = source.rows()
    head = list(islice(rows, _LOOK_AHEAD))
    everything = chain(head, rows)
    if any(row.has("session_id") and row.has("delay") for row in head):
        source.notes.assume("The file is in AIPerf's dialect (it has session_id and delay).")
        yield from mooncake_sessions.read_rows(source, options, everything)
        return
    requests = _plain(source, options, everything)
    if options.infer_sessions:
        source.notes.assume("Sessions are guessed from prompts that begin with all of another.")
        requests = with_sessions(requests)
    if options.jitter:
        requests = iter(_jittered(source, list(requests)))
    yield from requests


def _plain(source: Source, options: Options, rows: Iterable[Row]) -> Iterator[Request]:
    grids: dict[int, GridEnds] = {}
    chained = ChainCheck()
    source.notes.at_end(lambda: source.notes.assume(chained.sentence()))
    source.notes.assume("Outputs have no ids: later prompts never find what a model generated.")
    source.notes.assume("A partial last block has an id and counts with its own tokens.")
    clock = Clock("milliseconds", 1.0 if options.time_unit == "s" else 1e-3, options.sort)
    pace = _Pace(options.time_unit == "auto")
    for index, row in enumerate(rows):
        block = row.integer("block_size", 1) if row.has("block_size") else options.block_size
        prompt = _prompt(row, block, grids.setdefault(block, GridEnds(block)))
        chained.add(prompt.ids)
        arrival_s = clock.seconds(row, "timestamp")
        pace.check(row, arrival_s)
        yield Request(
            str(index),
            prompt,
            Spans.unknown(row.integer("output_length")),
            arrival_s=arrival_s,
            session_id=row.text("session_id") if row.has("session_id") else None,
            grid_tokens=block,
        )


def _prompt(row: Row, block: int, grid: GridEnds) -> Spans:
    num_tokens = row.integer("input_length", 1)
    ids = row.ids("hash_ids")
    expected = -(-num_tokens // block)
    if len(ids) != expected:
        raise row.error(
            f"hash_ids has {len(ids)} ids for input_length {num_tokens}; allowed: {expected} "
            f"(one for each started block of {block} tokens; trace.block_size sets the size)"
        )
    return grid.spans(ids, num_tokens)


class _Pace:
    """Finds files whose timestamps are seconds although the format says milliseconds."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._count = 0
        self._first_s = 0.0

    def check(self, row: Row, arrival_s: float) -> None:
        if not self._wanted:
            return
        value = row.fields["timestamp"]
        if value != int(value):
            raise row.error(self._message(f"timestamp is {shown(value)}, not a whole number"))
        if not self._count:
            self._first_s = arrival_s
        self._count += 1
        span_s = arrival_s - self._first_s
        if self._count % _CHECK_UNIT_EVERY or not span_s:
            return
        rate_per_s = self._count / span_s
        if rate_per_s > _MOST_REQUESTS_PER_S:
            found = (
                f"timestamp {shown(value)} after {self._count} requests means {rate_per_s:.0f}/s"
            )
            raise row.error(self._message(found))

    @staticmethod
    def _message(found: str) -> str:
        return (
            f"{found}, which looks like seconds; allowed: milliseconds "
            "(set trace.time_unit to s or ms to say which)"
        )


def _jittered(source: Source, requests: list[Request]) -> list[Request]:
    """Spread arrivals within their tick. Order within a tick changes with them."""
    source.notes.assume(f"Arrivals have a seeded uniform jitter in [0, {TICK_S:g} s).")
    jitter_s = source.rng("mooncake jitter").uniform(0.0, TICK_S, len(requests))
    moved = [
        replace(request, arrival_s=(request.arrival_s or 0.0) + float(extra_s))
        for request, extra_s in zip(requests, jitter_s, strict=True)
    ]
    return in_arrival_order(moved)
