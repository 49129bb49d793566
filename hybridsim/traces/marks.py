"""Marks: where an application that knows how its prompts are made would ask for checkpoints.

`layout` is written by the readers of formats that tell a prompt's parts; the others are here. What
a rule knows beyond the request at hand is said among the trace's assumptions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from hybridsim.errors import UserError
from hybridsim.request import Request
from hybridsim.traces.reading import Notes
from hybridsim.trie import ROOT, build_trie

MarkRule = Literal["layout", "shared", "prompt_end"]

_ASSUMED = {
    "layout": "Applications mark the ends of the prompt's parts that the trace tells.",
    "shared": "Applications mark the end of the longest prefix that a request of another session "
    "has too; it is taken from the whole trace, so the first to come knows it beforehand.",
    "prompt_end": "Applications mark the prompt's end.",
}
_NOBODY, _MANY = -1, -2  # beside numbers of sessions


def check_mark_rules(rules: Sequence[str], format: str, formats_with_layout: Sequence[str]) -> None:
    """UserError where the format does not tell what a rule wants to know."""
    if "layout" in rules and format not in formats_with_layout:
        raise UserError(
            "trace.marks",
            f"'layout' is not allowed with format {format}, which does not tell a prompt's parts; "
            f"allowed: shared, prompt_end (layout with {', '.join(formats_with_layout)})",
        )


def with_marks(
    requests: Iterable[Request], rules: Sequence[MarkRule], notes: Notes
) -> list[Request]:
    """The requests with the rules' marks beside those they have. It holds the whole trace."""
    requests = list(requests)
    for rule in rules:
        notes.assume(_ASSUMED[rule])
    wanted = [set(request.marks) for request in requests]
    if "prompt_end" in rules:
        for marks, request in zip(wanted, requests, strict=True):
            marks.add(request.num_prompt_tokens)
    if "shared" in rules:
        for marks, position in zip(wanted, shared_ends(requests), strict=True):
            marks.add(position)
    return [
        replace(request, marks=tuple(sorted(marks - {0})))
        for request, marks in zip(requests, wanted, strict=True)
    ]


def shared_ends(requests: Sequence[Request]) -> list[int]:
    """Of each prompt, the tokens that some prompt of another session begins with too; 0: none.

    A request without a session is a session of its own. O(nodes of the trie).
    """
    trie = build_trie(requests)
    order = trie.top_down().tolist()
    parent, ends = trie.parent.tolist(), trie.end_tokens.tolist()
    user = [_NOBODY] * trie.num_nodes
    sessions: dict[str, int] = {}
    for index, (request, node) in enumerate(zip(requests, trie.terminal.tolist(), strict=True)):
        name = request.session_id
        number = index if name is None else sessions.setdefault(name, index)
        user[node] = _both(user[node], number)
    for node in reversed(order):
        if node != ROOT:
            user[parent[node]] = _both(user[parent[node]], user[node])
    shared = [0] * trie.num_nodes
    for node in order:
        if node != ROOT:
            shared[node] = ends[node] if user[node] == _MANY else shared[parent[node]]
    return [shared[node] for node in trie.terminal.tolist()]


def _both(one: int, other: int) -> int:
    """The only session of two sets, or that there are many."""
    if one in (_NOBODY, other):
        return other
    return one if other == _NOBODY else _MANY
