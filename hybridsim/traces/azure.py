"""`azure`: Azure LLM inference traces, and Vidur's copies of them: arrivals and lengths only.

`TIMESTAMP,ContextTokens,GeneratedTokens` with 7 digits of fraction (other columns are ignored), or
Vidur's `arrived_at,num_prefill_tokens,num_decode_tokens`. Without content there is no hit rate;
`content` names a generator that makes some up.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from hybridsim.request import Request, Spans
from hybridsim.traces.content import LengthsOptions, with_content
from hybridsim.traces.csv_rows import csv_rows, seconds, whole
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Clock, Row

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
VIDUR_COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")


def read(source: Source, options: LengthsOptions) -> Iterator[Request]:
    """Requests of the file in its order, from 0 s at its first row."""
    yield from with_content(_lengths(source, options), source, options.content)


def _lengths(source: Source, options: LengthsOptions) -> Iterator[Request]:
    is_vidur = any(b"arrived_at" in line for _, line in _first_line(source))
    time, prompt, output = VIDUR_COLUMNS if is_vidur else COLUMNS
    clock = Clock("times", 1.0, options.sort)
    first_s = 0.0
    for index, row in enumerate(csv_rows(source, (time, prompt, output))):
        now_s = seconds(row, time) if is_vidur else _date_seconds(row)
        first_s = now_s if index == 0 else first_s
        clock.seconds(row.sub({time: now_s}), time)
        yield Request(
            str(index),
            Spans.unknown(whole(row, prompt, 1)),
            Spans.unknown(whole(row, output)),
            arrival_s=now_s - first_s,
        )


def _first_line(source: Source) -> list[tuple[int, bytes]]:
    quiet = Source(source.path, type(source.notes)())
    return [next(quiet.lines(), (1, b""))]


def _date_seconds(row: Row) -> float:
    """Seconds of `YYYY-MM-DD HH:MM:SS.fffffff`. Python's own parser stops at 6 digits, so the
    fraction is read apart; 100 ns survive in the sum of a day's seconds."""
    text = str(row.fields["TIMESTAMP"])
    moment, _, fraction = text.partition(".")
    try:
        # The 2024 files add a zone; all rows of a file share it.
        date = datetime.fromisoformat(moment).replace(tzinfo=UTC)
        digits = fraction.split("+")[0].rstrip("Z") or "0"
        return date.timestamp() - _EPOCH_S + int(digits) / 10 ** len(digits)
    except ValueError:
        raise row.wrong("TIMESTAMP", "a date such as 2023-11-16 18:15:46.6805900") from None


_EPOCH_S = datetime(2023, 1, 1, tzinfo=UTC).timestamp()  # near, so that floats keep 100 ns
