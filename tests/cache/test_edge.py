"""Edges compared with plain token tuples."""

from hypothesis import assume, given
from hypothesis import strategies as st

from hybridsim.cache.edge import Edge, PathKey
from hybridsim.request import Spans
from tests.plain import num_common, tokens_of

pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=5)


@given(pairs, pairs, st.sampled_from([1, 2, 3]), st.data())
def test_agreement_is_the_common_prefix_of_the_tokens(ours, theirs, page, data):
    ours, theirs = Spans.of(ours), Spans.of(theirs)
    our_tokens, their_tokens = tokens_of(ours), tokens_of(theirs)
    common = num_common(our_tokens, their_tokens)
    # the tree compares an edge only where the first page agrees already
    assume(common > 0)
    start = data.draw(st.integers(0, common - 1))
    end = data.draw(st.integers(start + 1, len(our_tokens)))
    our_key, their_key = PathKey(ours, page), PathKey(theirs, page)
    edge = Edge.of(our_key, our_key.index_at(start), start, end)
    agreed, row = edge.agreement(their_key, their_key.index_at(start))
    assert agreed == min(common, end)
    assert row is None or row == their_key.index_at(agreed)


@given(pairs, pairs, st.sampled_from([1, 2, 3]))
def test_page_keys_are_equal_exactly_if_the_pages_hold_equal_tokens(ours, theirs, page):
    ours, theirs = Spans.of(ours), Spans.of(theirs)
    our_tokens, their_tokens = tokens_of(ours), tokens_of(theirs)
    our_key, their_key = PathKey(ours, page), PathKey(theirs, page)
    # siblings part inside this page
    position = num_common(our_tokens, their_tokens) // page * page
    keys = [key.page_key_at(key.index_at(position), position) for key in (our_key, their_key)]
    for key, tokens in zip(keys, (our_tokens, their_tokens), strict=True):
        assert (key is None) == (position + page > len(tokens))
    if None not in keys:
        same = our_tokens[position : position + page] == their_tokens[position : position + page]
        assert (keys[0] == keys[1]) == same


@given(pairs, st.data())
def test_cutting_an_edge_keeps_its_content(ours, data):
    spans = Spans.of(ours)
    key = PathKey(spans, 1)
    start = data.draw(st.integers(0, spans.num_tokens - 1))
    end = data.draw(st.integers(start + 1, spans.num_tokens))
    edge = Edge.of(key, key.index_at(start), start, end)
    if end - start < 2:
        return
    position = data.draw(st.integers(start + 1, end - 1))
    for part, first, last in zip(edge.cut(position), (start, position), (position, end),
                                 strict=True):  # fmt: skip
        whole = Edge.of(key, key.index_at(first), first, last)
        assert (part.raw, part.cut_id, part.offset) == (whole.raw, whole.cut_id, whole.offset)
        assert part.key(1) == whole.key(1)
