"""Files of JSON lines, small random traces, and what tests compare of what was read."""

from pathlib import Path

import numpy as np
import orjson
from hypothesis import strategies as st

from hybridsim.request import Request, Spans
from hybridsim.traces import TraceStream
from hybridsim.traces.reading import Notes
from hybridsim.trie import build_trie


def write(path: Path, rows: list[dict]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def lengths(spans: Spans) -> list[int]:
    """Tokens of each span."""
    return np.diff(spans.ends, prepend=0).tolist()


def pairs(request: Request) -> list[tuple[int, int]]:
    """(content id, tokens) of each span of the prompt."""
    return list(zip(request.prompt.ids.tolist(), lengths(request.prompt), strict=True))


def matches(requests: list[Request], *, outputs: bool = False) -> list[int]:
    """Tokens of each prompt that earlier requests brought."""
    return build_trie(requests, outputs=outputs).match_tokens.tolist()


@st.composite
def traces(draw: st.DrawFn) -> list[Request]:
    """Small traces with few contents, unknown tails and outputs, sessions, links and marks."""
    pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=0, max_size=4)
    requests: list[Request] = []
    now_s = 0.0
    has_clock = draw(st.booleans())
    for index in range(draw(st.integers(1, 8))):
        known = Spans.of(draw(pairs))
        num_tokens = known.num_tokens + draw(st.integers(0 if len(known) else 1, 3))
        output = draw(st.one_of(st.integers(0, 3), pairs))
        now_s += draw(st.integers(0, 5)) / 2
        requests.append(
            Request(
                f"r{index % 5}",
                Spans(known.ids, known.ends, num_tokens),
                Spans.unknown(output) if isinstance(output, int) else Spans.of(output),
                arrival_s=now_s if has_clock else None,
                session_id=draw(st.sampled_from([None, "a", "b"])),
                grid_tokens=draw(st.sampled_from([1, 16])),
                previous=draw(st.integers(0, index - 1)) if index and draw(st.booleans()) else None,
                delay_s=draw(st.integers(0, 3)) / 2,
                marks=(1,) if draw(st.booleans()) else (),
                priority=draw(st.integers(-1, 2)),
            )
        )
    return requests


def stream(requests: list[Request], **notes: object) -> TraceStream:
    has_content = any(len(request.prompt) for request in requests)
    return TraceStream(iter(requests), "t", "segments", Notes(has_content=has_content, **notes))
