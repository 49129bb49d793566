"""`weka`: coding-agent sessions of kv-cache-tester (also SemiAnalysis cc-traces), one a line.

`{"id", "block_size": 64, "hash_id_scope": "local", "tool_tokens", "system_tokens", "requests"}`;
a request is `{"t", "type": "n" | "s", "model", "in", "out", "hash_ids", "api_time", "think_time"}`
or a subagent with requests of its own. Times are seconds from the session's start. Ids are local
to a session, and a partial last block has none (floor rule). A subagent's inner times are
relative to its marker. In the recordings the marker of a completed subagent stands at its *end*
(marker minus duration_ms lies within a second after the parent's last answer, in all of them), so
its start is the marker's time less its duration; a launched (async) one starts at its marker.
"""

import heapq
from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from hybridsim.request import Int64Array, Request, Spans
from hybridsim.traces.arrivals import arrival_times
from hybridsim.traces.options import Arrivals, TraceOptions
from hybridsim.traces.reading import Source
from hybridsim.traces.spans import GridEnds, shared_storage
from hybridsim.traces.weka_session import ID_BITS, Call, Session, parse_session

_SHARED_NAMESPACES = 1 << 24  # shared prefixes count from here, sessions from 0


class Options(TraceOptions):
    """Options of `weka`."""

    arrivals: Arrivals = Field(
        default=Arrivals(process="poisson", rate_per_s=0.01, of="sessions"),
        description="when sessions start (the files have no common clock)",
    )
    share_prefix: bool = Field(
        default=False,
        description="assume that sessions of one model with equal tool and system token counts "
        "begin with the same blocks",
    )
    models: Literal["merged", "separate"] = Field(
        default="merged", description="separate: prompts to different models never share content"
    )
    keep_duplicates: bool = Field(
        default=False, description="keep sessions that are copies of others"
    )


def read(source: Source, options: Options) -> Iterator[Request]:
    """Requests of all sessions, merged in arrival order while the file streams by."""
    _assume(source, options)
    content = _Content(options)
    times = arrival_times(options.arrivals, source.rng("weka session starts"))
    seen: set[bytes] = set()
    merge = _Merge("layout" in options.marks)
    for number, row in enumerate(source.rows()):
        session = parse_session(row)
        if session.digest in seen and not options.keep_duplicates:
            source.notes.drop("session that is a copy of an earlier one")
            continue
        seen.add(session.digest)
        if not session.calls:
            source.notes.drop("session without requests")
            continue
        content.name(session, number, scope_is_local=row.fields.get("hash_id_scope") != "global")
        start_s = next(times)
        yield from merge.before(start_s)
        merge.add(session, start_s)
    yield from merge.before(float("inf"))


def _assume(source: Source, options: Options) -> None:
    notes = source.notes
    process = options.arrivals.process
    rate = options.arrivals.rate_per_s
    pace = f" at {rate:g}/s" if rate is not None and process != "given" else ""
    notes.assume(f"Sessions have no common clock; their starts are {process}{pace}.")
    notes.assume("Tokens behind the last whole block have no id and match nothing.")
    notes.assume("A subagent starts at its marker less its duration, and its parent waits for it.")
    if options.share_prefix:
        notes.assume(
            "Sessions with equal model, tool and system token counts share those tokens' blocks; "
            "the files cannot confirm it, since their ids are local."
        )
    if options.models == "merged":
        notes.assume("One cache serves all models of a session (trace.models: separate undoes it).")


class _Merge:
    """Puts the calls of overlapping sessions in order. Sessions come in order of their starts."""

    def __init__(self, is_marked: bool) -> None:
        self._is_marked = is_marked
        self._waiting: list[tuple[float, int, int, Session, GridEnds]] = []
        self._num_sessions = 0
        self._num_emitted = 0
        self._grids: dict[int, GridEnds] = {}

    def add(self, session: Session, start_s: float) -> None:
        """Queue a session's calls."""
        grid = self._grids.setdefault(session.block_tokens, GridEnds(session.block_tokens))
        for position, call in enumerate(session.calls):
            item = (start_s + call.t_s, self._num_sessions, position, session, grid)
            heapq.heappush(self._waiting, item)
        self._num_sessions += 1

    def before(self, limit_s: float) -> Iterator[Request]:
        """Hand out all calls that come before a session starting at `limit_s` can have one."""
        while self._waiting and self._waiting[0][0] < limit_s:
            arrival_s, _, position, session, grid = heapq.heappop(self._waiting)
            call = session.calls[position]
            call.trace_index = self._num_emitted
            self._num_emitted += 1
            waited = session.calls[call.waits_for] if call.waits_for is not None else None
            yield Request(
                f"{session.session_id}/{position}",
                grid.spans(call.ids, call.num_prompt_tokens),
                Spans.unknown(call.num_output_tokens),
                arrival_s=arrival_s,
                session_id=session.session_id,
                grid_tokens=session.block_tokens,
                previous=waited.trace_index if waited is not None else None,
                delay_s=call.delay_s,
                marks=call.layout_ends() if self._is_marked else (),
            )


class _Content:
    """Makes local ids unique over sessions, and lets arrays of a session share storage.

    A content id is the namespace in the upper bits and the local id in the lower 32.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._namespaces: dict[tuple[object, ...], int] = {}
        self._shared: dict[tuple[str, tuple[int, int]], int] = {}

    def name(self, session: Session, number: int, *, scope_is_local: bool) -> None:
        """Replace each call's local ids by content ids."""
        owner = number if scope_is_local else "global"
        begins: dict[tuple[str, tuple[int, int]], Int64Array] = {}
        for call in session.calls:
            model = call.model if self._options.models == "separate" else ""
            key = (owner, model)
            space = self._namespaces.setdefault(key, len(self._namespaces))
            local = call.ids
            call.ids = local | (space << ID_BITS)
            if self._options.share_prefix:
                self._share(call, local, session.block_tokens, begins)
        for call, ids in zip(
            session.calls, shared_storage([call.ids for call in session.calls]), strict=True
        ):
            call.ids = ids

    def _share(
        self,
        call: Call,
        local: Int64Array,
        block_tokens: int,
        begins: dict[tuple[str, tuple[int, int]], Int64Array],
    ) -> None:
        """Name the tool and system blocks by position in a namespace of all sessions.

        A prompt that begins otherwise than the session's first one of its kind keeps its own ids.
        """
        key = (call.model, call.prefix)
        count = min(sum(call.prefix) // block_tokens, len(local))
        first = begins.setdefault(key, local)
        if count > len(first) or not np.array_equal(first[:count], local[:count]):
            return
        space = _SHARED_NAMESPACES + self._shared.setdefault(key, len(self._shared))
        call.ids[:count] = np.arange(count) | (space << ID_BITS)
