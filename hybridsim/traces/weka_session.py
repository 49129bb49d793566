"""One line of a `weka` file: a session with its subagents, as calls in the order of their times.

See `weka` for the format. Knows nothing of other sessions.
"""

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from hybridsim.request import Int64Array
from hybridsim.traces.row import Row, shown

_MAX_DEPTH = 50  # of subagents in subagents; recordings have one level
ID_BITS = 32  # local ids must be below 2^32


@dataclass(slots=True)
class Call:
    """One request of a session, times in seconds from the session's start."""

    t_s: float
    ids: Int64Array
    num_prompt_tokens: int
    num_output_tokens: int
    model: str
    prefix: tuple[int, int]
    think_s: float
    api_s: float
    waits_for: int | None = None
    delay_s: float = 0.0
    trace_index: int = -1

    def layout_ends(self) -> tuple[int, ...]:
        """Where the tools end, and the system prompt behind them, as far as the prompt goes."""
        tools, system = self.prefix
        ends = {min(end, self.num_prompt_tokens) for end in (tools, tools + system)}
        return tuple(sorted(ends - {0}))


@dataclass(slots=True)
class Session:
    """A parsed session; `calls` in the order of their times."""

    session_id: str
    block_tokens: int
    digest: bytes
    calls: list[Call] = field(default_factory=list)


def parse_session(row: Row) -> Session:
    """A session from its line; its digest is over everything but the session's id."""
    digest = blake2b(digest_size=16)
    block_tokens = row.integer("block_size", 1) if row.has("block_size") else 64
    if row.fields.get("hash_id_scope", "local") not in ("local", "global"):
        raise row.wrong("hash_id_scope", "local, global")
    session = Session(row.text("id"), block_tokens, b"")
    parser = _Parser(block_tokens, digest)
    parser.thread(row, 0.0, None)
    order = sorted(range(len(parser.calls)), key=lambda i: parser.calls[i].t_s)
    place = {old: new for new, old in enumerate(order)}
    for old in order:
        call = parser.calls[old]
        call.waits_for = place[call.waits_for] if call.waits_for is not None else None
        session.calls.append(call)
    rest = {key: value for key, value in row.fields.items() if key != "id"}
    digest.update(row.canonical(rest))
    session.digest = digest.digest()
    return session


class _Parser:
    """Collects the calls of one session over its main thread and its subagents."""

    def __init__(self, block_tokens: int, digest: Any) -> None:
        self.calls: list[Call] = []
        self._block_tokens = block_tokens
        self._digest = digest

    def thread(self, row: Row, offset_s: float, opener: int | None, depth: int = 0) -> int | None:
        """One thread of calls, from `offset_s` on, opened by call `opener`; returns its last call.

        A call waits for the call before it and for completed subagents in between: for whichever
        of them ends last.
        """
        if depth > _MAX_DEPTH:
            raise row.error(
                f"subagents open subagents {depth} deep; allowed: at most {_MAX_DEPTH} levels"
            )
        prefix = (_optional(row, "tool_tokens"), _optional(row, "system_tokens"))
        last, waits = opener, [] if opener is None else [opener]
        last_t_s = 0.0
        for item in row.items("requests"):
            if not isinstance(item, dict):
                raise row.error(f"requests holds {shown(item)}; allowed: JSON objects")
            part = row.sub(item)
            kind = item.get("type")
            t_s = part.number("t")
            if kind == "subagent":
                end = self._subagent(part, offset_s, t_s, last, depth)
                if end is not None and item.get("status") != "async_launched":
                    waits.append(end)
                continue
            if kind not in ("n", "s"):
                raise part.wrong("type", "n, s, subagent")
            if t_s < last_t_s:
                raise part.error(f"t is {t_s:g}, before {last_t_s:g}; allowed: rising seconds")
            last_t_s = t_s
            last = self._call(part, offset_s + t_s, prefix, waits, opener)
            waits = [last]
        return last if last != opener else None

    def _subagent(
        self, part: Row, offset_s: float, t_s: float, opener: int | None, depth: int
    ) -> int | None:
        ended = part.has("duration_ms") and part.fields.get("status") != "async_launched"
        duration_s = part.number("duration_ms") / 1000 if ended else 0.0
        return self.thread(part, offset_s + max(0.0, t_s - duration_s), opener, depth + 1)

    def _call(
        self, part: Row, t_s: float, prefix: tuple[int, int], waits: list[int], opener: int | None
    ) -> int:
        call = Call(
            t_s,
            self._ids(part),
            part.integer("in", 1),
            part.integer("out"),
            part.text("model") if part.has("model") else "",
            prefix,
            part.number("think_time") if part.has("think_time") else float("nan"),
            part.number("api_time") if part.has("api_time") else 0.0,
        )
        before = [i for i in waits if self.calls[i].t_s <= t_s]
        if before:
            call.waits_for = max(before, key=lambda i: self.calls[i].t_s + self.calls[i].api_s)
            waited = self.calls[call.waits_for]
            think_is_from_it = len(waits) == 1 and waits[0] != opener
            call.delay_s = max(0.0, t_s - waited.t_s - waited.api_s)
            if think_is_from_it and call.think_s == call.think_s:
                call.delay_s = call.think_s
        self.calls.append(call)
        return len(self.calls) - 1

    def _ids(self, part: Row) -> Int64Array:
        ids = part.ids("hash_ids")
        num_tokens = part.integer("in", 1)
        expected = num_tokens // self._block_tokens
        if len(ids) != expected:
            raise part.error(
                f"hash_ids has {len(ids)} ids for in {num_tokens}; allowed: {expected} "
                f"(one for each whole block of {self._block_tokens} tokens)"
            )
        if len(ids) and int(ids.max()) >> ID_BITS:
            raise part.error(f"hash_ids holds {int(ids.max())}; allowed: ids below 2^{ID_BITS}")
        self._digest.update(ids.tobytes())
        part.fields["hash_ids"] = len(ids)
        return ids


def _optional(row: Row, key: str) -> int:
    return row.integer(key) if row.has(key) else 0
