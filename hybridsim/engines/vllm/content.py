"""Names for prefixes: two requests get the same number exactly where their tokens agree.

A prefix that ends inside span i is named by the spans before it and by (id of i, length of the
prefix); so a span and a longer one with the same id agree up to the shorter end. Names are 64-bit
sums of mixed words: at 10^6 names a collision has a chance of about 3 in 10^8.
"""

import numpy as np
from numpy.typing import NDArray

from hybridsim.request import Spans

UInt64Array = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FRESH_ID = -(2**62)


def _mix(ids: NDArray[np.int64], ends: NDArray[np.int64]) -> UInt64Array:
    """Well-spread words of (id, end) pairs (the finaliser of splitmix64, applied twice)."""
    word = ids.astype(np.uint64)
    for salt in (np.zeros(1, np.uint64), ends.astype(np.uint64)):
        word = (word + salt) * _GOLDEN + _GOLDEN
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return word


class Content:
    """The tokens of one request, prompt and output, as far as prefixes are concerned.

    Tokens of unknown content belong to this request alone: `serial` must differ between requests.
    """

    def __init__(self, prompt: Spans, output: Spans, serial: int) -> None:
        known = prompt.joined(output)
        ids, ends = known.ids, known.ends
        if known.num_known_tokens < known.num_tokens:
            ids = np.append(ids, _FIRST_FRESH_ID + serial)
            ends = np.append(ends, known.num_tokens)
        self.num_tokens = known.num_tokens
        self.num_known_tokens = known.num_known_tokens
        self.ids, self.ends = ids, ends
        words = _mix(ids, ends)
        self._sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(words, dtype=np.uint64)])

    def names(self, positions: NDArray[np.int64]) -> UInt64Array:
        """Names of the prefixes of the given lengths (1 .. num_tokens), shape as `positions`."""
        span = np.searchsorted(self.ends, positions, side="left")
        return self._sums[span] + _mix(self.ids[span], positions)

    def block_keys(self, unit: int, lookahead_tokens: int) -> list[int]:
        """Name of every whole unit's prefix, rising; each covers `lookahead_tokens` more tokens."""
        last = self.num_tokens - lookahead_tokens
        positions = np.arange(unit, last + 1, unit, dtype=np.int64) + lookahead_tokens
        keys: list[int] = self.names(positions).tolist()
        return keys
