"""The trie in blocks of the trace, by the rules of `hybridsim.cache.block_cache`.

A block is one content id and one unit of memory, a partial last one too; blocks are equal if ids
and ends are. Prompts only, and all of a prompt may hit.
"""

from collections.abc import Sequence

import numpy as np

from hybridsim.analysis.passes import NEVER, PathTree, all_passes
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


def block_tree(requests: Sequence[Request]) -> PathTree:
    """One unit a block. Every node holds blocks of one size, so a partial last block has its own.

    O(blocks) time and memory.
    """
    builder = TrieBuilder()
    ends: dict[str | None, int] = {}
    names: dict[tuple[int, int], int] = {}
    terminal, sizes = [], {ROOT: 1}
    for index, request in enumerate(requests):
        named, cuts = _named(request.prompt, names)
        node = ends.get(request.session_id, ROOT) if request.session_id is not None else ROOT
        for count, size in cuts:
            part = Spans(named.ids[:count], named.ends[:count], count)
            before = len(builder.parent)
            node = builder.insert(part, index, node).node
            sizes.update(dict.fromkeys(range(before, len(builder.parent)), size))
        ends[request.session_id] = node
        terminal.append(node)
    return _as_tree(builder, terminal, sizes, requests)


def _named(prompt: Spans, names: dict[tuple[int, int], int]) -> tuple[Spans, list[tuple[int, int]]]:
    """Blocks renamed by (id, end), one unit each, and where their size changes: (count, tokens)."""
    lengths = np.diff(prompt.ends, prepend=0)
    pairs = zip(prompt.ids.tolist(), prompt.ends.tolist(), strict=True)
    ids = np.array([names.setdefault(pair, len(names)) for pair in pairs], dtype=np.int64)
    units = np.arange(1, len(ids) + 1, dtype=np.int64)
    changes = [*(np.flatnonzero(lengths[1:] != lengths[:-1]) + 1).tolist(), len(ids)]
    cuts = [(count, int(lengths[count - 1])) for count in changes if count]
    return Spans(ids, units, len(ids)), cuts


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
