"""Real traces, scaled down to tokens that an oracle can chew: content ids become token ids."""

from collections.abc import Iterable
from itertools import count, islice
from pathlib import Path
from typing import Any

from hybridsim.request import Request, Spans
from hybridsim.traces import open_trace


class _Tokens:
    """Token ids for contents: the same id and place in it always give the same token."""

    def __init__(self, scale: int) -> None:
        self._scale = scale
        self._fresh = count(1)
        self._known: dict[tuple[int, int], int] = {}

    def of(self, spans: Spans) -> list[int]:
        """A `scale`-th of the tokens; at least one where there is any."""
        tokens: list[int] = []
        start = 0
        for content_id, end in zip(spans.ids.tolist(), spans.ends.tolist(), strict=True):
            length = max(1, (end - start) // self._scale)
            start = end
            tokens += [self._token(content_id, place) for place in range(length)]
        unknown = max(0, spans.num_tokens // self._scale - len(tokens))
        return tokens + [next(self._fresh) for _ in range(unknown)]

    def _token(self, content_id: int, place: int) -> int:
        key = (content_id, place)
        if key not in self._known:
            self._known[key] = next(self._fresh)
        return self._known[key]


def scaled(requests: Iterable[Request], scale: int) -> list[dict[str, Any]]:
    """Rows for an oracle; every output has at least one token, and none of known content."""
    tokens = _Tokens(scale)
    return [
        {
            "id": request.request_id,
            "tokens": tokens.of(request.prompt) or [0],
            "output": tokens.of(Spans.unknown(max(request.num_output_tokens, scale))),
        }
        for request in requests
    ]


def first_requests(path: Path, format: str, num_requests: int, scale: int) -> list[dict[str, Any]]:
    """The first requests of a trace."""
    return scaled(islice(open_trace(path, format).requests, num_requests), scale)


def longest_session(path: Path, format: str, among: int, scale: int) -> list[dict[str, Any]]:
    """The session with most requests of the first `among` requests of a trace."""
    sessions: dict[str | None, list[Request]] = {}
    for request in islice(open_trace(path, format).requests, among):
        sessions.setdefault(request.session_id, []).append(request)
    return scaled(max(sessions.values(), key=len), scale)
