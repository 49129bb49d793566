"""Names of prefixes: two requests get the same number exactly where their tokens agree.

A prefix that ends inside span i is named by the spans before it and by (id of i, length of the
prefix); so a span and a longer one with the same id agree up to the shorter end. Names are 64-bit
sums of mixed words: among 10^6 names a collision has a chance of about 3 in 10^8.
"""

import numpy as np
from numpy.typing import NDArray

from hybridsim.engines.content import Content

UInt64Array = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _mix(ids: NDArray[np.int64], ends: NDArray[np.int64]) -> UInt64Array:
    """Well-spread words of (id, end) pairs (the finaliser of splitmix64, applied twice)."""
    word = ids.astype(np.uint64)
    for salt in (np.zeros(1, np.uint64), ends.astype(np.uint64)):
        word = (word + salt) * _GOLDEN + _GOLDEN
        word = (word ^ (word >> np.uint64(30))) * _FACTORS[0]
        word = (word ^ (word >> np.uint64(27))) * _FACTORS[1]
        word = word ^ (word >> np.uint64(31))
    return word


def prefix_names(content: Content, lengths: NDArray[np.int64]) -> UInt64Array:
    """Names of the prefixes of the given lengths (1 .. num_tokens); shape of `lengths`."""
    words = _mix(content.ids, content.ends)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])
    span = np.searchsorted(content.ends, lengths, side="left")
    return sums[span] + _mix(content.ids[span], lengths)


def block_keys(content: Content, unit: int, lookahead_tokens: int = 0) -> list[int]:
    """Name of every whole unit's prefix, rising; each covers `lookahead_tokens` more tokens."""
    last = content.num_tokens - lookahead_tokens
    lengths = np.arange(unit, last + 1, unit, dtype=np.int64) + lookahead_tokens
    keys: list[int] = prefix_names(content, lengths).tolist()
    return keys
