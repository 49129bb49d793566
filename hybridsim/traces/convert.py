"""Writes any trace as `segments` or `tokens`. A file is there as a whole or not at all.

What is named .gz or .xz is compressed that way, as the readers expect it.
"""

import gzip
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from hybridsim.errors import UserError, unknown_name
from hybridsim.files import written_whole
from hybridsim.request import Int64Array, Request, Spans
from hybridsim.traces import TraceStream


def write_trace(stream: TraceStream, path: str | Path, to: str) -> int:
    """Write the stream's requests to `path` in format `to`; returns their number.

    `segments` streams, and keeps unknown tails as such; `tokens` holds the whole trace, and gives
    tokens of unknown content ids that occur nowhere else.
    """
    if to not in WRITERS:
        raise unknown_name("--to", to, list(WRITERS))
    count, path = 0, Path(path)
    if not path.parent.is_dir():
        raise UserError(str(path), "its folder does not exist; allowed: a path in an existing one")
    with written_whole(path) as temporary, _opened(temporary, path.suffix) as file:
        for line in WRITERS[to](stream):
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
    return count


@contextmanager
def _opened(path: Path, suffix: str) -> Iterator[IO[bytes]]:
    """A new file to write to, deflated as `suffix` says. Equal traces give equal bytes."""
    with path.open("wb") as raw:
        if suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
                yield file  # type: ignore[misc]
        elif suffix == ".xz":
            with lzma.open(raw, "wb") as file:
                yield file
        else:
            yield raw


def _segment_lines(stream: TraceStream) -> Iterator[dict[str, Any]]:
    names = stream.notes.names
    extra = _Extras()
    for request in stream.requests:
        output = request.output
        known = output.num_known_tokens or not output.num_tokens
        yield extra.line(
            request,
            "prompt",
            _segments(request.prompt, names),
            _segments(output, names) if known else output.num_tokens,
        )


def _segments(spans: Spans, names: dict[int, str]) -> list[list[Any]]:
    lengths = np.diff(spans.ends, prepend=0).tolist()
    segments: list[list[Any]] = [
        [names.get(content_id) or f"c{content_id}", length]
        for content_id, length in zip(spans.ids.tolist(), lengths, strict=True)
    ]
    num_unknown = spans.num_tokens - spans.num_known_tokens
    return [*segments, [None, num_unknown]] if num_unknown else segments


def _token_lines(stream: TraceStream) -> Iterator[dict[str, Any]]:
    requests = list(stream.requests)
    if not stream.notes.has_content:
        raise UserError(
            "--to", "'tokens', but the trace records lengths only; allowed: segments, or a trace "
            "with content"
        )  # fmt: skip
    tokens = _TokenIds(requests)
    extra = _Extras()
    for request in requests:
        output = request.output
        known = output.num_known_tokens or not output.num_tokens
        yield extra.line(
            request,
            "tokens",
            tokens.ids(request.prompt),
            tokens.ids(output) if known else output.num_tokens,
        )


class _TokenIds:
    """A token id for each (content id, place in the span); content ids where spans are tokens."""

    def __init__(self, requests: list[Request]) -> None:
        longest: dict[int, int] = {}
        for request in requests:
            for spans in (request.prompt, request.output):
                lengths = np.diff(spans.ends, prepend=0)
                for content_id, length in zip(spans.ids.tolist(), lengths.tolist(), strict=True):
                    if length > longest.get(content_id, 0):
                        longest[content_id] = length
        self._contents = np.array(sorted(longest), dtype=np.int64)
        sizes = np.array([longest[i] for i in self._contents.tolist()], dtype=np.int64)
        if np.all(sizes == 1):
            self._bases = self._contents
            self._fresh = int(self._contents.max(initial=-1)) + 1
        else:
            self._bases = np.cumsum(sizes) - sizes
            self._fresh = int(sizes.sum())

    def ids(self, spans: Spans) -> list[int]:
        """Token ids of all tokens; unknown ones get ids never used before."""
        starts = np.concatenate([[0], spans.ends[:-1]])[: len(spans.ends)]
        bases: Int64Array = self._bases[np.searchsorted(self._contents, spans.ids)]
        known = np.repeat(bases - starts, spans.ends - starts) + np.arange(spans.num_known_tokens)
        first_fresh = self._fresh
        self._fresh += spans.num_tokens - spans.num_known_tokens
        return [*known.tolist(), *range(first_fresh, self._fresh)]


class _Extras:
    """The fields that both formats share. Ids that occur twice are told apart."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._seen: set[str] = set()

    def line(self, request: Request, key: str, prompt: Any, output: Any) -> dict[str, Any]:
        """One line, without the fields that have their default value."""
        name = request.request_id
        if name in self._seen:
            name = f"{name}#{len(self._ids)}"
        self._seen.add(name)
        self._ids.append(name)
        previous = None if request.previous is None else self._ids[request.previous]
        optional = {
            "arrival_s": request.arrival_s,
            "session": request.session_id,
            "previous": previous,
            "delay_s": request.delay_s or None,
            "marks": list(request.marks) or None,
            "priority": request.priority or None,
            "grid_tokens": request.grid_tokens if request.grid_tokens > 1 else None,
        }
        kept = {name: value for name, value in optional.items() if value is not None}
        return {"id": name, **kept, key: prompt, "output": output}


WRITERS: dict[str, Callable[[TraceStream], Iterator[dict[str, Any]]]] = {
    "segments": _segment_lines,
    "tokens": _token_lines,
}
