"""Which program of attention prefill does what: made once a step on the host, for all layers."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hybridsim.kernels.launch import num_multiprocessors, require
from hybridsim.kernels.plan import int_table

# Pieces are tried in these lengths. Joining one again costs about as much as so many keys more
# (128 rows of 256 channels, H200), and pieces must save so much of the time or nothing is cut.
_LIMITS = (8192, 4096, 2048, 1024, 512, 256)
_JOIN_KEYS, _LEAST_GAIN = 200, 0.08
# From so many programs a multiprocessor on, they fill the gaps of one another.
_MANY = 8
# Cuts of a prefix are multiples of this: whole tiles of keys.
_STEP = 64

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class PrefillWork:
    """The tables that the kernels read. All int32, on one device.

    pieces `[W, 8]`, those with most keys first: a block of queries (first row, number of rows,
    sequence, the sequence's first row), the keys it looks at (prefix from, prefix to, new tokens up
    to), and where its result goes: -1 for the output, else the number of its part.
    joins `[J, 4]`: blocks in several parts (first row, number of rows, first part, parts).
    """

    pieces: torch.Tensor
    joins: torch.Tensor
    query_rows: int
    num_blocks: int
    num_tokens: int
    num_parts: int
    most_parts: int
    has_prefix: bool


def make_work(
    chunks: Sequence[Span], query_rows: int, num_heads: int, device: torch.device | str = "cpu"
) -> PrefillWork:
    """Work of `(new tokens, prefix tokens)` a sequence, packed one after another.

    query_rows: rows of a block of queries, see `query_block`. Every piece is a program of each of
    num_heads heads, and prefixes are cut so that one of them does not go on while the rest of the
    card is idle: a short prompt after a long prefix takes as many pieces as others leave room for.
    """
    require(query_rows >= 1, f"query_rows is {query_rows}; allowed: at least 1")
    require(all(min(chunk) >= 0 for chunk in chunks), f"negative tokens in {chunks}")
    blocks = _blocks(chunks, query_rows)
    spans = [(prefix, seen) for *_, prefix, seen in blocks]
    limit = piece_limit(spans, num_heads, num_multiprocessors(torch.device(device)))
    pieces, joins, num_parts = [], [], 0
    for first, rows, sequence, start, prefix, seen in blocks:
        cuts = cut(prefix, seen, limit)
        parts = [-1]
        if len(cuts) > 1:
            joins.append((first, rows, num_parts, len(cuts)))
            parts = list(range(num_parts, num_parts + len(cuts)))
            num_parts += len(cuts)
        for span, part in zip(cuts, parts, strict=True):
            pieces.append((first, rows, sequence, start, *span, part))
    pieces.sort(key=lambda piece: piece[4] - piece[5] - piece[6])
    return PrefillWork(
        int_table(pieces, 8, device), int_table(joins, 4, device), query_rows, len(blocks),
        sum(new for new, _ in chunks), num_parts, max((n for *_, n in joins), default=0),
        any(prefix for new, prefix in chunks if new),
    )  # fmt: skip


def _blocks(chunks: Sequence[Span], query_rows: int) -> list[tuple[int, int, int, int, int, int]]:
    """(first row, rows, sequence, its first row, prefix tokens, new tokens seen) of each block."""
    blocks, start = [], 0
    for sequence, (new, prefix) in enumerate(chunks):
        for before in range(0, new, query_rows):
            rows = min(query_rows, new - before)
            blocks.append((start + before, rows, sequence, start, prefix, before + rows))
        start += new
    return blocks


def piece_limit(blocks: Sequence[Span], num_heads: int, multiprocessors: int) -> int | None:
    """Keys of a piece with which `(prefix, new tokens seen)` blocks are done first, None: uncut."""
    if not any(prefix for prefix, _ in blocks):
        return None

    def keys_of(limit: int | None) -> float:
        lengths = []
        for prefix, seen in blocks:
            cuts = cut(prefix, seen, limit)
            join = _JOIN_KEYS if len(cuts) > 1 else 0
            lengths += [end - begin + new + join for begin, end, new in cuts]
        return makespan(lengths, num_heads, multiprocessors)

    keys = {limit: keys_of(limit) for limit in _LIMITS}
    # Of equals the longest, which has the fewest parts.
    best = min(_LIMITS, key=keys.__getitem__)
    return best if keys[best] < (1 - _LEAST_GAIN) * keys_of(None) else None


def makespan(lengths: Sequence[int], copies: int, machines: int) -> float:
    """When the last of `copies` jobs of each length ends, the longest given out first."""
    if len(lengths) * copies > _MANY * machines:
        return max(sum(lengths) * copies / machines, max(lengths))
    ends = [0] * machines
    for length in sorted(lengths, reverse=True):
        for _ in range(copies):
            heapq.heapreplace(ends, ends[0] + length)
    return max(ends)


def cut(prefix: int, seen: int, limit: int | None) -> list[tuple[int, int, int]]:
    """(prefix from, prefix to, new tokens up to) of each piece of a block.

    The first piece also takes the new tokens, which are not cut.
    """
    first = prefix if limit is None else max(0, limit - seen) // _STEP * _STEP
    if limit is None or prefix + seen <= limit or first >= prefix:
        return [(0, prefix, seen)]
    count = -(-(prefix - first) // limit)
    length = -(-(prefix - first) // (count * _STEP)) * _STEP
    return [
        (0, first, seen),
        *((at, min(at + length, prefix), 0) for at in range(first, prefix, length)),
    ]
