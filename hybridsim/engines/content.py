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
    """

    __slots__ = ("_num_unit", "ends", "ids", "num_tokens")

    def __init__(self, ids: Int64Array, ends: Int64Array) -> None:
        self.ids = ids
        self.ends = ends
        self.num_tokens = int(ends[-1]) if len(ends) else 0
        self._num_unit = self._count_unit_spans()

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

    def span_at(self, position: int) -> int:
        """Index of the span that holds token `position`."""
        if position < self._num_unit:
            return position
        return int(self.ends.searchsorted(position, side="right"))

    def page_key(self, start: int, page_size: int) -> Hashable:
        """A name of the tokens `[start, start + page_size)`: equal exactly for equal content.

        Valid among sequences that agree up to `start`. Where spans start is part of the name: one
        id may stand twice in a row, and its second token is not its first.
        """
        first = self.span_at(start)
        if page_size == 1:
            return int(self.ids[first]), int(self.ends[first - 1]) if first else 0
        last = self.span_at(start + page_size - 1)
        starts = self.ends[max(first - 1, 0) : last]
        return self.ids[first : last + 1].tobytes(), starts.tobytes()

    def common_end(self, other: "Content", start: int, stop: int) -> int:
        """The first token in `[start, stop]` at which the two differ, `stop` when none does.

        Both must agree up to `start` and be at least `stop` tokens long.
        """
        if stop <= start:
            return start
        first = self.span_at(start)
        past = min(self.span_at(stop - 1) + 1, len(other.ids))
        differs = self.ids[first:past] != other.ids[first:past]
        differs |= self.ends[first:past] != other.ends[first:past]
        where = int(differs.argmax())
        if not differs[where]:
            return stop
        return min(stop, self._agreement_in_span(other, first + where, start))

    def _agreement_in_span(self, other: "Content", index: int, start: int) -> int:
        """The end of agreement inside the first pair of spans that are not equal."""
        if self.ids[index] == other.ids[index]:
            return int(min(self.ends[index], other.ends[index]))
        return max(start, int(self.ends[index - 1]) if index else 0)
