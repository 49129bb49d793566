"""What a trace is like, and what an infinite cache could reuse of it. One pass over a stream."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridsim.request import Int64Array, Request
from hybridsim.traces import TraceStream
from hybridsim.trie import ROOT, Trie, TrieBuilder, build_trie

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean, percentiles and extremes of some numbers."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @staticmethod
    def of(values: Int64Array | Float64Array) -> "Distribution":
        """From at least one value."""
        p50, p90, p99 = np.percentile(values, [50, 90, 99])
        return Distribution(
            float(values.mean()), float(p50), float(p90), float(p99), float(values.max())
        )


@dataclass(frozen=True, slots=True)
class Reuse:
    """What an infinite cache that keeps prompts could reuse, in arrival order.

    `block_hit_rate`: whole spans found again / all spans. `token_hit_rate`: tokens found again /
    all prompt tokens. `known_token_hit_rate`: / prompt tokens of known content.
    `capped_token_hit_rate`: at most n - 1 tokens of a prompt of n, since engines compute one.
    `with_outputs_token_hit_rate`: as `token_hit_rate`, were outputs kept too; None: none is known.
    `within_session` and `across_sessions`: shares of prompt tokens; found in the same session's
    earlier prompts, and found only in others'. They add up to `token_hit_rate`.
    `gap_requests` and `gap_s`: (p50, p90) over reused tokens of the distance to their last use.
    """

    block_hit_rate: float
    token_hit_rate: float
    known_token_hit_rate: float
    capped_token_hit_rate: float
    with_outputs_token_hit_rate: float | None
    within_session: float | None
    across_sessions: float | None
    gap_requests: tuple[float, float] | None
    gap_s: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class TraceStats:
    """All that `hybridsim trace stats` prints. `reuse` is None where only lengths are known."""

    name: str
    format: str
    num_requests: int
    num_sessions: int
    num_spans: int
    prompt_tokens: Distribution
    output_tokens: Distribution
    num_prompt_tokens: int
    num_output_tokens: int
    span_s: float | None
    requests_per_s: float | None
    reuse: Reuse | None
    num_trie_nodes: int
    dropped: dict[str, int]
    assumptions: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(slots=True)
class _Columns:
    """What is kept of each request while the trace streams by."""

    prompt: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)
    arrival_s: list[float] = field(default_factory=list)
    session: list[str | None] = field(default_factory=list)

    def watch(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Hand the requests on and note them down."""
        for request in requests:
            self.prompt.append(request.num_prompt_tokens)
            self.known.append(request.prompt.num_known_tokens)
            self.output.append(request.num_output_tokens)
            self.spans.append(len(request.prompt))
            self.arrival_s.append(float("nan") if request.arrival_s is None else request.arrival_s)
            self.session.append(request.session_id)
            yield request


class _WithOutputs:
    """The same matching in a second trie that also keeps outputs."""

    def __init__(self) -> None:
        self._builder = TrieBuilder()
        self._ends: dict[str | None, int] = {}
        self._count = 0
        self.num_match_tokens = 0
        self.any_known = False

    def watch(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Hand the requests on; count what they find."""
        for request in requests:
            hint = self._ends.get(request.session_id, ROOT) if request.session_id else ROOT
            found = self._builder.insert(request.prompt, self._count, hint)
            self.num_match_tokens += found.num_match_tokens
            node = found.node
            if len(request.output):
                self.any_known = True
                whole = request.prompt.joined(request.output)
                node = self._builder.insert(whole, self._count, node).node
            self._ends[request.session_id] = node
            self._count += 1
            yield request


def trace_stats(stream: TraceStream) -> TraceStats:
    """Read the stream to its end and sum it up. Memory: the trie, and a few numbers a request."""
    columns, outputs = _Columns(), _WithOutputs()
    trie = build_trie(columns.watch(outputs.watch(stream.requests)))
    prompt = np.array(columns.prompt, dtype=np.int64)
    output = np.array(columns.output, dtype=np.int64)
    arrival_s = np.array(columns.arrival_s, dtype=np.float64)
    sessions = {name for name in columns.session if name is not None}
    span_s = float(arrival_s.max() - arrival_s.min()) if not np.isnan(arrival_s).any() else None
    return TraceStats(
        name=stream.name,
        format=stream.format,
        num_requests=len(prompt),
        num_sessions=len(sessions),
        num_spans=sum(columns.spans),
        prompt_tokens=Distribution.of(prompt),
        output_tokens=Distribution.of(output),
        num_prompt_tokens=int(prompt.sum()),
        num_output_tokens=int(output.sum()),
        span_s=span_s,
        requests_per_s=(len(prompt) - 1) / span_s if span_s else None,
        reuse=_reuse(trie, columns, outputs) if stream.notes.has_content else None,
        num_trie_nodes=trie.num_nodes,
        dropped=dict(stream.notes.dropped),
        assumptions=list(stream.notes.assumptions),
    )


def _reuse(trie: Trie, columns: _Columns, outputs: _WithOutputs) -> Reuse:
    prompt = np.array(columns.prompt, dtype=np.int64)
    total, match = int(prompt.sum()), trie.match_tokens
    num_match = int(match.sum())
    within = None
    if any(name is not None for name in columns.session):
        within = int(matches_within_sessions(trie, columns.session).sum()) / total
    gaps = reuse_gaps(trie, np.array(columns.arrival_s, dtype=np.float64))
    return Reuse(
        block_hit_rate=int(trie.match_spans.sum()) / max(1, sum(columns.spans)),
        token_hit_rate=num_match / total,
        known_token_hit_rate=num_match / max(1, sum(columns.known)),
        capped_token_hit_rate=int(np.minimum(match, prompt - 1).sum()) / total,
        with_outputs_token_hit_rate=(
            outputs.num_match_tokens / total if outputs.any_known else None
        ),
        within_session=within,
        across_sessions=None if within is None else num_match / total - within,
        gap_requests=_p50_p90(gaps.requests, gaps.num_tokens),
        gap_s=None if np.isnan(gaps.seconds).any() else _p50_p90(gaps.seconds, gaps.num_tokens),
    )


def matches_within_sessions(trie: Trie, sessions: list[str | None]) -> Int64Array:
    """Per request, tokens shared with an earlier prompt of its own session, `[num_requests]`.

    0 for requests without session. O(requests + different nodes of each session).
    """
    parent, end_tokens = trie.parent.tolist(), trie.end_tokens.tolist()
    visited: dict[str, set[int]] = {}
    match = np.zeros(len(sessions), dtype=np.int64)
    for index, (session, terminal) in enumerate(zip(sessions, trie.terminal.tolist(), strict=True)):
        if session is None:
            continue
        seen = visited.setdefault(session, {ROOT})
        node = terminal
        while node not in seen:
            seen.add(node)
            node = parent[node]
        match[index] = end_tokens[node]
    return match


@dataclass(frozen=True, slots=True)
class Gaps:
    """Reused tokens by the distance to their last use; arrays of equal length."""

    requests: Int64Array
    seconds: Float64Array
    num_tokens: Int64Array


def reuse_gaps(trie: Trie, arrival_s: Float64Array) -> Gaps:
    """How long ago reused tokens were last used. O(sum of path lengths).

    The part of a prompt that an earlier request has touched lies at nodes up to the match; each of
    them was last touched by some request before. Neighbours touched by the same one are joined.
    """
    parent, end_tokens = trie.parent.tolist(), trie.end_tokens.tolist()
    last = [-1] * trie.num_nodes
    rows: list[tuple[int, int, int]] = []
    for index, terminal in enumerate(trie.terminal.tolist()):
        node, run_user, run_end = terminal, -1, 0
        while node != ROOT:
            user, last[node] = last[node], index
            if user != run_user:
                if run_user >= 0:
                    rows.append((index, run_user, run_end - end_tokens[node]))
                run_user, run_end = user, end_tokens[node]
            node = parent[node]
        if run_user >= 0:
            rows.append((index, run_user, run_end))
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    seconds = arrival_s[table[:, 0]] - arrival_s[table[:, 1]]
    return Gaps(table[:, 0] - table[:, 1], seconds, table[:, 2])


def _p50_p90(values: Int64Array | Float64Array, weights: Int64Array) -> tuple[float, float] | None:
    """Weighted percentiles: the smallest value with at least that share of weight up to it."""
    if not len(values):
        return None
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    at = np.searchsorted(cumulative, cumulative[-1] * np.array([0.5, 0.9]))
    p50, p90 = values[order][at]
    return float(p50), float(p90)
