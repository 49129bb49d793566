"""Guesses sessions in traces without session ids, from block ids that are chained.

A request goes on with an earlier one when its prompt begins with all *full* blocks of that prompt
and is longer than that prompt and its output together. (A partial last block gets another id as
soon as the next turn fills it up.) The one with the most full blocks counts, and of those the
latest; each is continued at most once. A prompt whose last full block another session brought in
shows nothing of its own (only a system prompt, say), and is never continued.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hybridsim.request import Request


@dataclass(slots=True)
class _Turn:
    """The last request whose full blocks end with a certain one."""

    index: int
    session_id: str
    arrival_s: float
    num_tokens: int


def with_sessions(requests: Iterable[Request]) -> Iterator[Request]:
    """`requests` with guessed `session_id`, `previous` and `delay_s`; streams, O(ids).

    Ids must be chained: one id stands for the whole prefix up to its block.
    """
    open_turns: dict[int, _Turn] = {}
    owner: dict[int, str] = {}
    for index, request in enumerate(requests):
        prompt = request.prompt
        ids = prompt.ids[prompt.ends % request.grid_tokens == 0].tolist()
        before = _continued(ids, open_turns, request.num_prompt_tokens)
        arrival_s = request.arrival_s or 0.0
        session_id = request.request_id if before is None else before.session_id
        for content_id in ids:
            owner.setdefault(content_id, session_id)
        if ids and owner[ids[-1]] == session_id:
            num_tokens = request.num_prompt_tokens + request.num_output_tokens
            open_turns[ids[-1]] = _Turn(index, session_id, arrival_s, num_tokens)
        yield replace(
            request,
            session_id=session_id,
            previous=None if before is None else before.index,
            delay_s=0.0 if before is None else max(0.0, arrival_s - before.arrival_s),
        )


def _continued(ids: list[int], open_turns: dict[int, _Turn], num_tokens: int) -> _Turn | None:
    """Take out the request with the most full blocks that a prompt of `ids` goes on with."""
    for content_id in reversed(ids):
        turn = open_turns.get(content_id)
        if turn is not None and turn.num_tokens < num_tokens:
            return open_turns.pop(content_id)
    return None
