"""Which request passes which trie node, and who passed it before: the raw material of analyses.

A pass is a pair (request, node on its path). Curves and bounds are sums over passes, or over
*runs*: neighbouring passes of one request whose nodes were last passed by the same request. It
knows no bytes, no policies and no capacities.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybridsim.request import Int64Array, Request, Spans
from hybridsim.trie import ROOT, Trie, build_trie

NEVER = -1


@dataclass(frozen=True, slots=True, eq=False)
class PathTree:
    """A trie whose depths count units of memory: pages, or the blocks of a trace.

    Per node, `[num_nodes]`: `parent` (-1 for the root); `start`, `end`: units above it, and with
    it; `unit_tokens`: tokens of each of its units.
    Per request, `[num_requests]`: `prompt_node`, `last_node`: where the prompt ends and where
    prompt + cached output end; `limit`: units of the longest hit that is allowed;
    `num_prompt_tokens`.
    """

    parent: Int64Array
    start: Int64Array
    end: Int64Array
    unit_tokens: Int64Array
    prompt_node: Int64Array
    last_node: Int64Array
    limit: Int64Array
    num_prompt_tokens: Int64Array

    @property
    def num_requests(self) -> int:
        return len(self.prompt_node)

    def levels(self) -> Int64Array:
        """Nodes on the path to each node, itself included, the root not; `[num_nodes]`."""
        level = np.zeros(len(self.parent), dtype=np.int64)
        at, climbing = self.parent.copy(), np.arange(len(self.parent)) != ROOT
        while climbing.any():
            level += climbing
            climbing &= at != ROOT
            at = np.where(climbing, self.parent[at], ROOT)
        return level


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """All passes in request order and, within a request, from the top down.

    `first`, `[num_requests + 1]`: where a request's passes begin. Per pass, `[num_passes]`:
    `request`, `node`, `previous`: the last request that passed the node before, or NEVER;
    `in_prompt`: the node is part of what is looked up (else it is output). `previous` falls
    strictly from run to run down the path, and NEVER comes last.
    """

    first: Int64Array
    request: Int64Array
    node: Int64Array
    previous: Int64Array
    in_prompt: np.ndarray

    @property
    def num_requests(self) -> int:
        return len(self.first) - 1

    def previous_pass(self) -> Int64Array:
        """For each pass the pass of the same node before it, or NEVER, `[num_passes]`."""
        order = np.argsort(self.node, kind="stable")
        same = self.node[order][1:] == self.node[order][:-1]
        before = np.full(len(self.node), NEVER, dtype=np.int64)
        before[order[1:]] = np.where(same, order[:-1], NEVER)
        return before

    def run_starts(self, extra: np.ndarray | None = None) -> Int64Array:
        """Pass at which each run begins, `[num_runs]`. A change of `extra` begins a run as well."""
        begins = np.ones(len(self.request), dtype=bool)
        begins[1:] = self.request[1:] != self.request[:-1]
        begins[1:] |= self.previous[1:] != self.previous[:-1]
        if extra is not None:
            begins[1:] |= extra[1:] != extra[:-1]
        return np.flatnonzero(begins)


def page_tree(
    trie: Trie, requests: Sequence[Request], page_tokens: int = 1, *, caps_last_token: bool = True
) -> PathTree:
    """The trie in pages: what two prompts share is floored to whole pages, at every fork.

    caps_last_token: at least one prompt token is computed, so a hit is at most n - 1 tokens.
    """
    end = trie.end_tokens // page_tokens
    start = np.where(trie.parent == NEVER, 0, end[trie.parent])
    num_tokens = np.array([request.num_prompt_tokens for request in requests], dtype=np.int64)
    limit = np.maximum(num_tokens - int(caps_last_token), 0) // page_tokens
    sizes = np.full(trie.num_nodes, page_tokens, dtype=np.int64)
    return PathTree(
        trie.parent, start, end, sizes, trie.terminal, trie.full_terminal, limit, num_tokens
    )


def cached_trie(requests: Sequence[Request], *, outputs: bool) -> Trie:
    """The trie of what the research cache keeps: a last generated token is never fed back."""
    if not outputs:
        return build_trie(requests)
    kept = (_Cut(r.prompt, _without_last(r.output), r.session_id) for r in requests)
    return build_trie(kept, outputs=True)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Cut:
    """The part of a request that `build_trie` reads."""

    prompt: Spans
    output: Spans
    session_id: str | None


def _without_last(output: Spans) -> Spans:
    num_tokens = max(output.num_tokens - 1, 0)
    if output.num_known_tokens <= num_tokens:
        return output
    count = int(np.searchsorted(output.ends, num_tokens, side="left")) + 1 if num_tokens else 0
    return Spans(output.ids[:count], np.minimum(output.ends[:count], num_tokens), num_tokens)


def all_passes(tree: PathTree) -> Passes:
    """Every pass of the trace. O(passes log passes) time, O(passes) memory."""
    level = tree.levels()
    lengths = level[tree.last_node]
    first = np.concatenate([[0], np.cumsum(lengths)])
    node = np.empty(first[-1], dtype=np.int64)
    at, place = tree.last_node.copy(), first[1:] - 1
    alive = np.flatnonzero(at != ROOT)
    while len(alive):
        node[place[alive]] = at[alive]
        place[alive] -= 1
        at[alive] = tree.parent[at[alive]]
        alive = alive[at[alive] != ROOT]
    request = np.repeat(np.arange(tree.num_requests), lengths)
    in_prompt = level[node] <= level[tree.prompt_node][request]
    unlinked = Passes(first, request, node, np.full(len(node), NEVER, dtype=np.int64), in_prompt)
    before = unlinked.previous_pass()
    previous = np.where(before == NEVER, NEVER, request[before])
    return replace(unlinked, previous=previous)
