"""`burstgpt`: BurstGPT CSV files: arrivals in seconds and lengths, no content.

`Timestamp,[Session ID],[Elapsed time],Model,Request tokens,Response tokens,Total tokens,Log Type`.
Rows with 0 response tokens are failed requests and left out, unless `keep_failed` is set.
"""

from collections.abc import Iterator

from pydantic import Field

from hybridsim.request import Request, Spans
from hybridsim.traces.content import LengthsOptions, with_content
from hybridsim.traces.csv_rows import csv_rows, seconds, whole
from hybridsim.traces.reading import Source
from hybridsim.traces.row import Clock

COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type")


class Options(LengthsOptions):
    """Options of `burstgpt`."""

    keep_failed: bool = Field(default=False, description="keep requests without response tokens")
    model: str | None = Field(
        default=None, description="read only rows of this model, such as GPT-4"
    )


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of the file in its order, from 0 s at its first row."""
    yield from with_content(_lengths(source, options), source, options.content)


def _lengths(source: Source, options: Options) -> Iterator[Request]:
    clock = Clock("seconds", 1.0, options.sort)
    first_s: float | None = None
    for row in csv_rows(source, COLUMNS):
        now_s = clock.seconds(row.sub({"Timestamp": seconds(row, "Timestamp")}), "Timestamp")
        first_s = now_s if first_s is None else first_s
        num_prompt, num_output = whole(row, "Request tokens"), whole(row, "Response tokens")
        if whole(row, "Total tokens") != num_prompt + num_output:
            raise row.wrong("Total tokens", f"{num_prompt + num_output}, request and response")
        if options.model is not None and row.fields["Model"] != options.model:
            source.notes.drop("row of another model")
        elif num_prompt == 0:
            source.notes.drop("row without request tokens")
        elif num_output == 0 and not options.keep_failed:
            source.notes.drop("failed request (no response tokens)")
        else:
            yield Request(
                str(row.line_number),
                Spans.unknown(num_prompt),
                Spans.unknown(num_output),
                arrival_s=now_s - first_s,
                session_id=str(row.fields.get("Session ID") or "").strip() or None,
            )
