"""Trace readers: one file a format, all of them ending in `Request`s in arrival order."""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os.path import exists
from pathlib import Path
from typing import Any

from hybridsim.errors import UserError, shorten, unknown_name
from hybridsim.request import Request, Trace
from hybridsim.traces import (
    azure,
    bailian,
    burstgpt,
    content,
    generators,
    marconi,
    messages,
    mooncake,
    mooncake_sessions,
    ragpulse,
    segments,
    tokens,
    weka,
)
from hybridsim.traces.arrivals import check_arrivals, in_arrival_order, retimed
from hybridsim.traces.marks import check_mark_rules, with_marks
from hybridsim.traces.options import TraceOptions, parse_options
from hybridsim.traces.reading import Notes, Progress, Source


@dataclass(frozen=True, slots=True)
class Format:
    """A reader and its options; `choose` finds them where they depend on what is asked for."""

    about: str
    read: Callable[[Source, Any], Iterator[Request]]
    options: type[TraceOptions] = TraceOptions
    choose: Callable[[Mapping[str, object]], type[TraceOptions]] | None = None
    needs_path: bool = True
    draws_own_arrivals: bool = False
    tells_layout: bool = False

    def parse(self, given: Mapping[str, object]) -> TraceOptions:
        """The checked options; UserError names `trace.<key>`."""
        return parse_options(self.choose(given) if self.choose else self.options, given)


FORMATS: dict[str, Format] = {
    "segments": Format("named segments with lengths (the project's own)", segments.read),
    "tokens": Format("token ids", tokens.read),
    "mooncake": Format("Mooncake FAST'25, 512-token block ids", mooncake.read, mooncake.Options),
    "mooncake-sessions": Format(
        "AIPerf's dialect of Mooncake: what each turn adds",
        mooncake_sessions.read,
        mooncake_sessions.Options,
    ),
    "weka": Format(
        "coding-agent sessions with local 64-token block ids",
        weka.read,
        weka.Options,
        draws_own_arrivals=True,
        tells_layout=True,
    ),
    "bailian": Format(
        "Qwen-Bailian, 16-token block ids and parent links", bailian.read, bailian.Options
    ),
    "ragpulse": Format(
        "RAGPulse folder: content segments with lengths",
        ragpulse.read,
        ragpulse.Options,
        tells_layout=True,
    ),
    "azure": Format(
        "Azure LLM inference CSV (or Vidur's copy): lengths only",
        azure.read,
        content.LengthsOptions,
    ),
    "burstgpt": Format("BurstGPT CSV: lengths only", burstgpt.read, burstgpt.Options),
    "marconi": Format("Marconi token ids of prompt and output", marconi.read),
    "messages": Format("OpenAI-style chat logs", messages.read, messages.Options),
    "generate": Format(
        "a seeded made-up workload; no file",
        generators.draw,
        generators.GeneratorOptions,
        generators.options_of,
        needs_path=False,
        draws_own_arrivals=True,
    ),
}


@dataclass(slots=True)
class TraceStream:
    """A trace that is being read. `notes` are complete once `requests` is used up."""

    requests: Iterator[Request]
    name: str
    format: str
    notes: Notes


def open_trace(
    path: str | Path | None,
    format: str,
    *,
    first: int | None = None,
    options: Mapping[str, object] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TraceStream:
    """A trace as a stream of requests in arrival order.

    Checks format, options and path at once; the file's content is checked while it streams, and
    a UserError names file, line, value and what is allowed. Formats without order, `sort`, and
    re-drawn session starts hold the whole trace; all others hold a window.
    `first`: stop after so many requests. `seed`: of everything that is drawn.
    """
    if format not in FORMATS:
        raise unknown_name("trace.format", format, list(FORMATS))
    chosen = FORMATS[format]
    parsed = chosen.parse(options or {})
    check_arrivals(parsed.arrivals, may_be_recorded=not chosen.draws_own_arrivals)
    check_mark_rules(parsed.marks, format, [name for name in FORMATS if FORMATS[name].tells_layout])
    if seed < 0:
        raise UserError("seed", f"{seed}; allowed: a whole number from 0")
    if first is not None and not 1 <= first <= sys.maxsize:
        allowed = f"a number of requests, 1 to {sys.maxsize:,}"
        raise UserError("trace.first", f"{shorten(str(first))}; allowed: {allowed}")
    source = Source(_checked_path(path, chosen), Notes(), seed, progress)
    name = source.path.name if chosen.needs_path else str(getattr(parsed, "generator", format))
    return TraceStream(_pipeline(source, chosen, parsed, first), name, format, source.notes)


def read_trace(
    path: str | Path | None,
    format: str,
    *,
    first: int | None = None,
    options: Mapping[str, object] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trace:
    """The whole trace in memory; arguments and errors as `open_trace`."""
    stream = open_trace(path, format, first=first, options=options, seed=seed, progress=progress)
    requests = list(stream.requests)
    notes = stream.notes
    return Trace(
        requests, stream.name, format, notes.has_content, dict(notes.dropped), notes.assumptions
    )


def require_content(trace: Trace) -> None:
    """UserError where only lengths are known, since any hit rate would be made up."""
    if not trace.has_content:
        raise content.no_content_error(trace.name)


def _checked_path(path: str | Path | None, chosen: Format) -> Path:
    if not chosen.needs_path:
        if path is not None:
            raise UserError("trace.path", f"{str(path)!r}; allowed: none, this format has no file")
        return Path()
    if path is None:
        raise UserError("trace.path", "missing; allowed: the path of the trace")
    if not exists(path):
        raise UserError(
            "trace.path",
            f"{shorten(repr(str(path)), 200)} does not exist; allowed: an existing path",
        )
    return Path(path)


def _pipeline(
    source: Source, chosen: Format, options: TraceOptions, first: int | None
) -> Iterator[Request]:
    requests = chosen.read(source, options)
    if options.sort:
        requests = iter(in_arrival_order(list(requests)))
    if not chosen.draws_own_arrivals:
        if options.arrivals.process != "recorded":
            source.notes.assume(f"Arrivals are {options.arrivals.process}, not the recorded ones.")
        requests = iter(retimed(requests, options.arrivals, source.rng("arrivals")))
    requests = islice(requests, first)
    if options.marks:
        requests = iter(with_marks(requests, options.marks, source.notes))
    count = 0
    for request in requests:
        count += 1
        yield request
    source.notes.finish()
    if not count:
        raise UserError(str(source.path), "holds no requests; allowed: at least one")
