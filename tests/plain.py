"""Content spelled out token by token: the slow, plain truth that fast code is held against."""

from collections.abc import Iterable, Sequence

from hybridsim.request import Spans

Token = tuple[int, int]
"""A content id and the token's offset in its span; that is what spans mean."""


def spelled(pairs: Iterable[tuple[int, int]]) -> list[Token]:
    """Tokens of (content id, length) pairs."""
    return [(content_id, offset) for content_id, length in pairs for offset in range(length)]


def tokens_of(spans: Spans) -> list[Token]:
    """Tokens of known content."""
    ends = spans.ends.tolist()
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return spelled(zip(spans.ids.tolist(), lengths, strict=True))


def num_common(one: Sequence[object], other: Sequence[object]) -> int:
    """How many tokens (or letters) both have in common from the start."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))
