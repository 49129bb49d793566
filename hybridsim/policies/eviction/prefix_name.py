"""A name for the first tokens of a request, equal for equal content."""

from bisect import bisect_left
from collections.abc import Hashable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridsim.request import Int64Array, Request

_ODD = np.array([[0x9E3779B97F4A7C15], [0xC2B2AE3D27D4EB4F]], dtype=np.uint64)


class _Sums(NamedTuple):
    """Of one request's spans: ids, ends, and two running sums over hashes of those before each."""

    ids: list[int]
    ends: list[int]
    sums: tuple[list[int], list[int]]


def prefix_name(request: Request, num_tokens: int) -> Hashable:
    """Names the first `num_tokens` (>= 1, all of known content). O(log spans) when asked again.

    Made of the spans that end before the last token, and of the id of the span that holds it.
    Span ends differ, so a set of (id, end) is a sequence, and a sum of their hashes names it: 128
    bits, equal for other content with a chance of about 2 ** -128 a pair.
    """
    ids, ends, (first, second) = _sums(request)
    row = bisect_left(ends, num_tokens)
    return first[row], second[row], ids[row], num_tokens


@lru_cache(maxsize=1024)
def _sums(request: Request) -> _Sums:
    spans = request.prompt.joined(request.output)
    sums = np.zeros((2, len(spans.ids) + 1), dtype=np.uint64)
    np.cumsum(_hashes(spans.ids, spans.ends), axis=1, out=sums[:, 1:])
    first, second = sums.tolist()
    return _Sums(spans.ids.tolist(), spans.ends.tolist(), (first, second))


def _hashes(ids: Int64Array, ends: Int64Array) -> NDArray[np.uint64]:
    """Two hashes of each (id, end), [2, spans]; the mixing steps are those of splitmix64."""
    mixed = _mixed(ids.astype(np.uint64) * _ODD + _ODD[::-1])
    return _mixed(mixed ^ (ends.astype(np.uint64) * _ODD[::-1]))


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
