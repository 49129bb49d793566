"""The static prefix trie of a whole trace, built online in arrival order. Knows no caches.

Edges are compressed: a node stands for the run of tokens `[start_tokens, end_tokens)` that lies
between two places where prompts part or end. Every place where two prompts part, and the end of
every prompt, is the end of a node. A node may begin or end inside a span, since two prompts whose
spans have equal ids and different ends agree up to the smaller end.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hybridsim.request import Int64Array, Request, Spans

ROOT = 0


@dataclass(frozen=True, slots=True)
class Insertion:
    """Where a sequence ends in the trie, and how much of it was there before it came."""

    node: int
    num_match_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """The finished trie; node 0 is the root, which holds no tokens. All arrays are int64.

    Per node, `[num_nodes]`: `parent` (-1 for the root); `start_tokens`, `end_tokens`: the node's
    tokens counted from the start of the prompt; `first_span`, `end_span`: the spans of the prompt
    that these tokens touch (a span that is cut belongs to both sides); `first_request`: index of
    the request that brought the tokens in.
    Per request, `[num_requests]`: `terminal`: the node where its known prompt ends;
    `full_terminal`: where prompt + output end (equal to `terminal` where outputs are left out or
    unknown); `match_tokens`, `match_spans`: the longest prefix shared with any earlier sequence,
    in tokens and in whole spans. That is what an infinite cache would have resident.
    """

    parent: Int64Array
    start_tokens: Int64Array
    end_tokens: Int64Array
    first_span: Int64Array
    end_span: Int64Array
    first_request: Int64Array
    terminal: Int64Array
    full_terminal: Int64Array
    match_tokens: Int64Array
    match_spans: Int64Array

    @property
    def num_nodes(self) -> int:
        """Number of nodes, the root included."""
        return len(self.parent)

    def path(self, node: int) -> Int64Array:
        """Nodes from below the root down to `node`, `[depth]`. O(depth)."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = int(self.parent[node])
        return np.array(nodes[::-1], dtype=np.int64)

    def top_down(self) -> Int64Array:
        """All nodes, every parent before its children, `[num_nodes]`. O(n log n)."""
        return np.argsort(self.start_tokens, kind="stable")

    def node_tokens(self) -> Int64Array:
        """Tokens a node holds, `[num_nodes]`."""
        return self.end_tokens - self.start_tokens


class TrieBuilder:
    """Takes sequences one by one. Node numbers stay valid: a split keeps the number below.

    It keeps references to the sequences that brought new tokens, never copies.
    """

    def __init__(self) -> None:
        self.parent = [-1]
        self.start_tokens = [0]
        self.end_tokens = [0]
        self.first_span = [0]
        self.end_span = [0]
        self.first_request = [-1]
        self._owner = [Spans.unknown(0)]
        # A child is found by the id of its first span, or, where it goes on inside the span in
        # which its parent ends, by the parent alone: that span's id is already settled.
        self._children: dict[tuple[int, int], int] = {}
        self._continuation: dict[int, int] = {}

    def insert(self, spans: Spans, request: int, hint: int = ROOT) -> Insertion:
        """Add the known part of `spans` on behalf of request number `request`.

        `hint`: a node likely to share a long prefix (where the session's last prompt ended); it
        changes the speed, never the result. O(nodes below the hint's common part) array compares,
        O(spans compared) elements.
        """
        node, num_match = self._walk(spans, hint)
        if num_match < self.end_tokens[node]:
            node = self._split(node, num_match)
        if num_match < spans.num_known_tokens:
            node = self._add_leaf(node, spans, request)
        return Insertion(node, num_match)

    def lookup(self, spans: Spans, hint: int = ROOT) -> int:
        """Tokens of `spans` that are in the trie as a prefix. Changes nothing; cost as `insert`."""
        return self._walk(spans, hint)[1]

    def _walk(self, spans: Spans, hint: int) -> tuple[int, int]:
        """The deepest node that `spans` reaches, and the number of tokens that agree."""
        node, num_match = self._climb(spans, hint)
        num_known = spans.num_known_tokens
        while num_match == self.end_tokens[node] and num_match < num_known:
            child = self._child(node, spans)
            if child is None:
                break
            node = child
            num_match = self._agree(spans, node, self.first_span[node], num_match)
        return node, num_match

    def _climb(self, spans: Spans, hint: int) -> tuple[int, int]:
        """From the hint up to the node that holds the last token shared with it."""
        if hint == ROOT or not len(spans):
            return ROOT, 0
        num_match = self._agree(spans, hint, 0, 0)
        node = hint
        while node != ROOT and self.start_tokens[node] >= num_match:
            node = self.parent[node]
        return node, num_match

    def _agree(self, spans: Spans, node: int, first_span: int, num_before: int) -> int:
        """Tokens up to which `spans` follows the path to `node`, at most the node's end.

        Known already: they agree on the first `num_before` tokens, in which `first_span` begins
        or before which it lies.
        """
        owner = self._owner[node]
        last = min(self.end_span[node], len(spans.ids))
        differ = spans.ids[first_span:last] != owner.ids[first_span:last]
        differ |= spans.ends[first_span:last] != owner.ends[first_span:last]
        at = int(differ.argmax())
        if not differ[at]:
            return min(int(spans.ends[last - 1]), self.end_tokens[node])
        at += first_span
        if spans.ids[at] == owner.ids[at]:
            num_match = min(int(spans.ends[at]), int(owner.ends[at]))
        else:
            num_match = int(spans.ends[at - 1]) if at > first_span else num_before
        return min(num_match, self.end_tokens[node])

    def _child(self, node: int, spans: Spans) -> int | None:
        """The child along which `spans`, known to go on past `node`, would go."""
        after = self.end_span[node]
        if after and spans.ends[after - 1] > self.end_tokens[node]:
            return self._continuation.get(node)
        return self._children.get((node, int(spans.ids[after])))

    def _append(self, parent: int, tokens: tuple[int, int], owner: Spans, request: int) -> int:
        start, end = tokens
        self.parent.append(parent)
        self.start_tokens.append(start)
        self.end_tokens.append(end)
        self.first_span.append(int(np.searchsorted(owner.ends, start, side="right")))
        self.end_span.append(int(np.searchsorted(owner.ends, end, side="left")) + 1)
        self.first_request.append(request)
        self._owner.append(owner)
        return len(self.parent) - 1

    def _add_leaf(self, parent: int, spans: Spans, request: int) -> int:
        tokens = (self.end_tokens[parent], spans.num_known_tokens)
        leaf = self._append(parent, tokens, spans, request)
        self._link(leaf)
        return leaf

    def _split(self, node: int, at_tokens: int) -> int:
        """Cut `node` in two; the new node is the upper part, `node` stays the lower one."""
        tokens = (self.start_tokens[node], at_tokens)
        owner = self._owner[node]
        upper = self._append(self.parent[node], tokens, owner, self.first_request[node])
        self._link(upper)
        self.parent[node] = upper
        self.start_tokens[node] = at_tokens
        self.first_span[node] = int(np.searchsorted(owner.ends, at_tokens, side="right"))
        self._link(node)
        return upper

    def _link(self, node: int) -> None:
        """Make `node` findable from its parent."""
        parent, owner, first = self.parent[node], self._owner[node], self.first_span[node]
        if self.start_tokens[node] > (owner.ends[first - 1] if first else 0):
            self._continuation[parent] = node
        else:
            self._children[parent, int(owner.ids[first])] = node

    def finish(self, per_request: dict[str, list[int]]) -> Trie:
        """The static trie, with the given per-request columns. O(n)."""
        per_node = {
            name: np.array(getattr(self, name), dtype=np.int64)
            for name in (
                "parent",
                "start_tokens",
                "end_tokens",
                "first_span",
                "end_span",
                "first_request",
            )
        }
        columns = {name: np.array(values, dtype=np.int64) for name, values in per_request.items()}
        return Trie(**per_node, **columns)


def build_trie(requests: Iterable[Request], *, outputs: bool = False) -> Trie:
    """The trie of all prompts, in the given order; one pass, so `requests` may stream.

    `outputs`: also put in prompt + output of each request before the next one comes, where the
    output's content is known: a cache that keeps generated tokens, and finishes at once.
    Cost: see `TrieBuilder.insert`; memory O(nodes) + the sequences that brought new tokens.
    """
    builder = TrieBuilder()
    columns: dict[str, list[int]] = {
        name: [] for name in ("terminal", "full_terminal", "match_tokens", "match_spans")
    }
    ends: dict[str | None, int] = {}
    for index, request in enumerate(requests):
        hint = ROOT if request.session_id is None else ends.get(request.session_id, ROOT)
        prompt = request.prompt
        found = builder.insert(prompt, index, hint)
        last = found.node
        if outputs and len(request.output):
            last = builder.insert(prompt.joined(request.output), index, found.node).node
        ends[request.session_id] = last
        columns["terminal"].append(found.node)
        columns["full_terminal"].append(last)
        columns["match_tokens"].append(found.num_match_tokens)
        whole = int(np.searchsorted(prompt.ends, found.num_match_tokens, side="right"))
        columns["match_spans"].append(whole)
    return builder.finish(columns)
