"""The trie in blocks of the trace, by the rules of `hybridsim.cache.block_cache`.

A block is one content id and one unit of memory, a partial last one too; blocks are equal if ids
and ends are. Prompts only, and all of a prompt may hit.
"""

from collections.abc import Sequence

import numpy as np

from hybridsim.analysis.interval import BoundRules, Problem, Served, problem_of
from hybridsim.analysis.passes import NEVER, PathTree, all_passes
from hybridsim.analysis.room import Load
from hybridsim.analysis.stack import stack_distances
from hybridsim.analysis.steps import Curve, Steps
from hybridsim.request import Int64Array, Request, Spans
from hybridsim.trie import ROOT, TrieBuilder


def block_curve(requests: Sequence[Request], *, num_warmup: int = 0) -> Curve:
    """Hit tokens over a capacity in *blocks*: equal to `BlockLRU` at every number of blocks."""
    tree = block_tree(requests)
    passes = all_passes(tree)
    node = passes.node
    weights = (tree.end - tree.start)[node]
    distances = stack_distances(passes, weights, weights)
    chosen = (passes.request >= num_warmup) & (passes.previous != NEVER)
    first = (distances - weights + 1)[chosen]
    steps = Steps.ramps(first, 1, weights[chosen], tree.unit_tokens[node][chosen])
    return Curve(steps, int(tree.num_prompt_tokens[num_warmup:].sum()))


def block_problem(requests: Sequence[Request], *, num_warmup: int = 0) -> Problem:
    """The interval problem of caches of blocks: capacities are numbers of blocks.

    There are no states, and a request need not keep what it has read. Where all blocks hold equally
    many tokens the bound is what the best policy gets, since Belady's rule keeps prefixes whole.
    """
    rules = BoundRules(1, 0, outputs=False, caps_last_token=False, insertion="bypass")
    served = Served.everyone(requests, num_warmup)
    tree = block_tree(requests)
    none = np.zeros(len(requests), dtype=np.int64)
    return problem_of(served, rules, tree, all_passes(tree), Load.in_turn(none, none), 1)


def block_tree(requests: Sequence[Request]) -> PathTree:
    """One unit a block. Every node holds blocks of one size, so a partial last block has its own.

    O(blocks) time and memory.
    """
    builder = TrieBuilder()
    ends: dict[str | None, int] = {}
    sizes_seen = (int(request.prompt.ends[0]) for request in requests if len(request.prompt) > 1)
    names = _Names(next(sizes_seen, 1))
    terminal, sizes = [], {ROOT: 1}
    for index, request in enumerate(requests):
        named, cuts = names.rename(request.prompt)
        node = ends.get(request.session_id, ROOT) if request.session_id is not None else ROOT
        for count, size in cuts:
            part = Spans(named.ids[:count], named.ends[:count], count)
            before = len(builder.parent)
            node = builder.insert(part, index, node).node
            sizes.update(dict.fromkeys(range(before, len(builder.parent)), size))
        ends[request.session_id] = node
        terminal.append(node)
    return _as_tree(builder, terminal, sizes, requests)


class _Names:
    """Gives blocks ids such that equal ids are equal blocks wherever prompts have agreed so far.

    A block of the common size after blocks of that size keeps its own id; any other one, such as a
    partial last block, gets a negative id for its (id, end).
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._odd: dict[tuple[int, int], int] = {}

    def rename(self, prompt: Spans) -> tuple[Spans, list[tuple[int, int]]]:
        """One unit a block, and where the size of blocks changes: (count, tokens of the last)."""
        count = len(prompt.ids)
        units = np.arange(1, count + 1, dtype=np.int64)
        odd = np.flatnonzero((prompt.ends != units * self._block_tokens) | (prompt.ids < 0))
        ids = prompt.ids
        if len(odd):
            ids = ids.copy()
            for at in odd.tolist():
                pair = (int(prompt.ids[at]), int(prompt.ends[at]))
                ids[at] = self._odd.setdefault(pair, -1 - len(self._odd))
        lengths = np.diff(prompt.ends, prepend=0)
        changes = [*(np.flatnonzero(lengths[1:] != lengths[:-1]) + 1).tolist(), count]
        return Spans(ids, units, count), [(at, int(lengths[at - 1])) for at in changes if at]


def _as_tree(
    builder: TrieBuilder, terminal: list[int], sizes: dict[int, int], requests: Sequence[Request]
) -> PathTree:
    parent = np.array(builder.parent, dtype=np.int64)
    end: Int64Array = np.array(builder.end_tokens, dtype=np.int64)
    at = np.array(terminal, dtype=np.int64)
    num_tokens = np.array([request.num_prompt_tokens for request in requests], dtype=np.int64)
    unit_tokens = np.array([sizes[node] for node in range(len(parent))], dtype=np.int64)
    start = np.array(builder.start_tokens, dtype=np.int64)
    return PathTree(parent, start, end, unit_tokens, at, at, end[at], num_tokens)
