"""Which program of attention prefill does what: made once a step on the host, for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hybridsim.kernels.launch import num_multiprocessors, require

# A block of queries with this much more than its fair share of keys is cut into pieces. Pieces are
# joined again, which for one of 256 keys costs about as much as the keys themselves.
UNEVEN = 1.25
_SHORTEST, _LONGEST = 256, 2048
# Programs that a multiprocessor takes at once, about.
_RESIDENT = 1.9
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
    keys = [prefix + seen for *_, prefix, seen in blocks]
    limit = piece_limit(keys, num_heads, num_multiprocessors(torch.device(device)))
    pieces, joins, num_parts = [], [], 0
    for first, rows, sequence, start, prefix, seen in blocks:
        cuts = cut(prefix, seen, limit)
        if len(cuts) > 1:
            joins.append((first, rows, num_parts, len(cuts)))
        for begin, end, new_end in cuts:
            part = num_parts if len(cuts) > 1 else -1
            num_parts += len(cuts) > 1
            pieces.append((first, rows, sequence, start, begin, end, new_end, part))
    pieces.sort(key=lambda piece: piece[4] - piece[5] - piece[6])
    return PrefillWork(
        _table(pieces, 8, device), _table(joins, 4, device), query_rows, len(blocks),
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


def piece_limit(keys: Sequence[int], num_heads: int, multiprocessors: int) -> int | None:
    """Keys of a piece where blocks of so many keys are uneven, else None: nothing is cut.

    A fair share is what each program would take if all that run at once had the same. Pieces are
    the power of two below it, from 256 to 2048 keys.
    """
    fair = sum(keys) * num_heads / (_RESIDENT * multiprocessors)
    if max(keys, default=0) <= UNEVEN * max(fair, _SHORTEST):
        return None
    limit = _LONGEST
    while limit > _SHORTEST and limit > fair:
        limit //= 2
    return limit


def cut(prefix: int, seen: int, limit: int | None) -> list[tuple[int, int, int]]:
    """(prefix from, prefix to, new tokens up to) of each piece of a block.

    The first piece also takes the new tokens, which are not cut.
    """
    first = prefix if limit is None else max(0, limit - seen) // _STEP * _STEP
    if limit is None or prefix + seen <= UNEVEN * limit or first >= prefix:
        return [(0, prefix, seen)]
    count = -(-(prefix - first) // limit)
    length = -(-(prefix - first) // (count * _STEP)) * _STEP
    return [
        (0, first, seen),
        *((at, min(at + length, prefix), 0) for at in range(first, prefix, length)),
    ]


def _table(rows: Sequence[tuple[int, ...]], width: int, device: torch.device | str) -> torch.Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.int32).reshape(-1, width)).to(device)
