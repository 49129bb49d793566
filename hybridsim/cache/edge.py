"""Comparing token sequences span by span: what a request asks for and what a tree edge holds.

Content is held as rows `(content id, absolute token end)`. Two sequences that agree up to some
token have the same rows up to it, so rows can be compared by position, as bytes, at memcmp speed.
"""

from collections.abc import Hashable

import numpy as np

from hybridsim.request import Int64Array, Spans

ROW_BYTES = 16  # one id and one end, int64 each


def page_key(
    rows: Int64Array,
    index: int,
    offset: int,
    position: int,
    page_tokens: int,
    cut_id: int | None = None,
) -> Hashable:
    """Names the content of the page at `position`; equal keys mean equal content.

    rows: (n, 2). `rows[index]` covers `position`, which lies `offset` tokens into that span.
    cut_id: content id of a span that follows the rows and was cut. The page must be complete.
    """
    stop = position + page_tokens
    if index == len(rows) or rows[index, 1] >= stop:
        content_id = cut_id if index == len(rows) else int(rows[index, 0])
        return content_id if offset == 0 else (content_id, offset)
    last = int(np.searchsorted(rows[:, 1], stop))
    last_id = cut_id if last == len(rows) else int(rows[last, 0])
    return offset, rows[index:last].tobytes(), last_id


class PathKey:
    """A sequence prepared for walking the tree. `num_tokens` counts tokens of known content."""

    __slots__ = ("num_tokens", "page_tokens", "raw", "rows")

    def __init__(self, spans: Spans, page_tokens: int) -> None:
        self.rows: Int64Array = np.empty((len(spans.ids), 2), dtype=np.int64)
        self.rows[:, 0] = spans.ids
        self.rows[:, 1] = spans.ends
        self.raw = self.rows.tobytes()
        self.num_tokens = spans.num_known_tokens
        self.page_tokens = page_tokens

    def index_at(self, position: int) -> int:
        """Row that covers the token at `position`. O(log n)."""
        return int(np.searchsorted(self.rows[:, 1], position, side="right"))

    def page_key_at(self, index: int, position: int) -> Hashable | None:
        """Key of the page at `position`, which row `index` covers; None if it is incomplete."""
        if position + self.page_tokens > self.num_tokens:
            return None
        offset = position - (int(self.rows[index - 1, 1]) if index else 0)
        return page_key(self.rows, index, offset, position, self.page_tokens)


class Edge:
    """The content of tokens `[start, end)` of some sequence, both multiples of the page size.

    `raw`: rows of the spans that end inside; `cut_id`: id of the last span if `end` cuts it;
    `offset`: tokens of the first span that lie before `start`.
    """

    __slots__ = ("cut_id", "end", "offset", "raw", "start")

    def __init__(self, raw: bytes, cut_id: int | None, start: int, end: int, offset: int) -> None:
        self.raw = raw
        self.cut_id = cut_id
        self.start = start
        self.end = end
        self.offset = offset

    @classmethod
    def of(cls, key: PathKey, index: int, start: int, end: int) -> "Edge":
        """Tokens `[start, end)` of a sequence whose row `index` covers `start`."""
        offset = start - (int(key.rows[index - 1, 1]) if index else 0)
        last = int(np.searchsorted(key.rows[:, 1], end, side="right"))
        is_cut = (int(key.rows[last - 1, 1]) if last > index else start) < end
        cut_id = int(key.rows[last, 0]) if is_cut else None
        return cls(key.raw[index * ROW_BYTES : last * ROW_BYTES], cut_id, start, end, offset)

    @property
    def rows(self) -> Int64Array:
        return np.frombuffer(self.raw, dtype=np.int64).reshape(-1, 2)

    def key(self, page_tokens: int) -> Hashable:
        """Name of the first page."""
        return page_key(self.rows, 0, self.offset, self.start, page_tokens, self.cut_id)

    def agreement(self, key: PathKey, index: int) -> tuple[int, int | None]:
        """How far `key`, whose row `index` covers `start`, holds the same tokens.

        Returns the position up to which both agree (at most `end`) and, where that costs nothing
        to know, the row of `key` that follows it. O(1) numpy calls, O(rows) bytes compared.
        """
        first = index * ROW_BYTES
        if key.raw[first : first + len(self.raw)] == self.raw:
            after = index + len(self.raw) // ROW_BYTES
            if self.cut_id is None:
                return self.end, after
            agreed = int(key.rows[after - 1, 1]) if after > index else self.start
            if after < len(key.rows) and key.rows[after, 0] == self.cut_id:
                agreed = min(self.end, int(key.rows[after, 1]))
            return agreed, None
        return self._first_difference(key.rows[index:]), None

    def _first_difference(self, theirs: Int64Array) -> int:
        ours = self.rows
        num_rows = min(len(ours), len(theirs))
        differs = (ours[:num_rows] != theirs[:num_rows]).any(axis=1)
        row = int(differs.argmax()) if differs.any() else num_rows
        if row < num_rows and ours[row, 0] == theirs[row, 0]:
            return int(min(ours[row, 1], theirs[row, 1]))  # equal ids: the shorter is a prefix
        return int(ours[row - 1, 1]) if row else self.start

    def cut(self, position: int) -> tuple["Edge", "Edge"]:
        """The parts before and after `position`, which lies strictly inside."""
        rows = self.rows
        whole = int(np.searchsorted(rows[:, 1], position, side="right"))
        span_start = int(rows[whole - 1, 1]) if whole else self.start - self.offset
        cut_id = None
        if span_start < position:
            cut_id = int(rows[whole, 0]) if whole < len(rows) else self.cut_id
        split = whole * ROW_BYTES
        head = Edge(self.raw[:split], cut_id, self.start, position, self.offset)
        tail = Edge(self.raw[split:], self.cut_id, position, self.end, position - span_start)
        return head, tail
