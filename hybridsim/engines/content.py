"""Token content of a whole sequence (prompt and output), compared span by span, never by token.

Knows nothing of caches: it answers how far two sequences agree and names the tokens of a page.
"""

from collections.abc import Hashable
from itertools import count

import numpy as np

from hybridsim.request import NO_IDS, Int64Array, Spans

_fresh_ids = count(1)


class Content:
    """A sequence of spans of which every token is known.

    `ids` and `ends` (int64, equal length) are those of `Spans`. Tokens of unknown content become
    one span with an id of its own, far below any id that a trace uses, so that they match nothing.
    A piece of a sequence keeps its positions and has only the spans that it needs.
    """

    __slots__ = ("_num_skipped", "_num_unit", "ends", "ids", "num_tokens")

    def __init__(self, ids: Int64Array, ends: Int64Array) -> None:
        self.ids = ids
        self.ends = ends
        self.num_tokens = int(ends[-1]) if len(ends) else 0
        self._num_unit = self._count_unit_spans()
        self._num_skipped = 0

    def _count_unit_spans(self) -> int:
        """Leading spans of one token: in them a position is its own span index."""
        if len(self.ends) == self.num_tokens:
            return self.num_tokens
        if self.ends[0] != 1:
            return 0
        return int((self.ends != np.arange(1, len(self.ends) + 1)).argmax())

    @staticmethod
    def of(*parts: Spans) -> "Content":
        """The parts one after the other; unknown stretches get fresh content."""
        ids: list[Int64Array] = [NO_IDS]
        ends: list[Int64Array] = [NO_IDS]
        base = 0
        for part in parts:
            ids.append(part.ids)
            ends.append(part.ends + base if base else part.ends)
            if part.num_known_tokens < part.num_tokens:
                ids.append(np.array([next(_fresh_ids) - 2**62], dtype=np.int64))
                ends.append(np.array([base + part.num_tokens], dtype=np.int64))
            base += part.num_tokens
        return Content(np.concatenate(ids), np.concatenate(ends))

    def piece(self, start: int, end: int) -> "Content":
        """A copy that knows the tokens `[start, end)` only, at their old positions."""
        # One span more in front, since it says where the first one starts.
        skipped = max(self.span_at(start) - 1, self._num_skipped)
        kept = self._local(skipped, self.span_at(end - 1) + 1)
        piece = Content(NO_IDS, NO_IDS)
        piece.ids, piece.ends = self.ids[kept].copy(), self.ends[kept].copy()
        piece.num_tokens = int(piece.ends[-1])
        piece._num_unit, piece._num_skipped = self._num_unit, skipped
        return piece

    def _local(self, first: int, past: int) -> slice:
        """Where the spans `[first, past)` stand in the arrays."""
        return slice(first - self._num_skipped, past - self._num_skipped)

    def span_at(self, position: int) -> int:
        """Index of the span that holds token `position`."""
        if position < self._num_unit:
            return position
        return int(self.ends.searchsorted(position, side="right")) + self._num_skipped

    def page_key(self, start: int, page_size: int) -> Hashable:
        """A name of the tokens `[start, start + page_size)`: equal exactly for equal content.

        Valid among sequences that agree up to `start`. Where spans start is part of the name: one
        id may stand twice in a row, and its second token is not its first.
        """
        first = self.span_at(start)
        if page_size == 1:
            place = first - self._num_skipped
            return int(self.ids[place]), int(self.ends[place - 1]) if first else 0
        last = self.span_at(start + page_size - 1)
        starts = self.ends[self._local(max(first - 1, 0), last)]
        return self.ids[self._local(first, last + 1)].tobytes(), starts.tobytes()

    def common_end(self, other: "Content", start: int, stop: int) -> int:
        """The first token in `[start, stop]` at which the two differ, `stop` when none does.

        Both must agree up to `start`, be at least `stop` tokens long, and know those tokens.
        """
        if stop <= start:
            return start
        if self is other:
            return stop
        first = self.span_at(start)
        past = min(self.span_at(stop - 1) + 1, other._num_skipped + len(other.ids))
        here, there = self._local(first, past), other._local(first, past)
        # Nearly always all are equal, and bytes compare several times faster than short arrays.
        if (
            self.ids[here].tobytes() == other.ids[there].tobytes()
            and self.ends[here].tobytes() == other.ends[there].tobytes()
        ):
            return stop
        differs = self.ids[here] != other.ids[there]
        differs |= self.ends[here] != other.ends[there]
        return min(stop, self._agreement_in_span(other, first + int(differs.argmax()), start))

    def _agreement_in_span(self, other: "Content", index: int, start: int) -> int:
        """The end of agreement inside the first pair of spans that are not equal."""
        here, there = index - self._num_skipped, index - other._num_skipped
        if self.ids[here] == other.ids[there]:
            return int(min(self.ends[here], other.ends[there]))
        return max(start, int(self.ends[here - 1]) if index else 0)
