"""Pieces of attention prefill: each pair of a query and a key once, in even shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.attention import work as module  # noqa: E402
from hybridsim.kernels.attention.work import cut, make_work, piece_limit  # noqa: E402

CHUNKS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 20_000)), max_size=5)


@given(CHUNKS, st.sampled_from([16, 64, 128]), st.integers(1, 40))
def test_every_block_sees_its_prefix_once_and_the_new_tokens_once(chunks, rows, heads):
    work = make_work(chunks, rows, heads)
    seen: dict[tuple[int, int, int, int], list[tuple[int, int, int, int]]] = {}
    for first, count, sequence, start, begin, end, new_end, part in work.pieces.tolist():
        seen.setdefault((first, count, sequence, start), []).append((begin, end, new_end, part))
    start, blocks = 0, []
    for sequence, (new, _) in enumerate(chunks):
        starts = range(start, start + new, rows)
        blocks += [(at, min(rows, start + new - at), sequence, start) for at in starts]
        start += new
    assert sorted(seen) == blocks
    assert (work.num_blocks, work.num_tokens) == (len(blocks), start)
    for (first, count, sequence, start), pieces in seen.items():
        pieces.sort(key=lambda piece: (piece[1], piece[0]))
        edges = [0, *(end for _, end, _, _ in pieces)]
        assert [begin for begin, *_ in pieces] == edges[:-1]
        assert edges[-1] == chunks[sequence][1]
        assert sorted(n for _, _, n, _ in pieces) == [0] * (len(pieces) - 1) + [
            first + count - start
        ]


@given(CHUNKS, st.sampled_from([16, 64, 128]), st.integers(1, 40))
def test_parts_are_numbered_block_by_block(chunks, rows, heads):
    work = make_work(chunks, rows, heads)
    parts = sorted(part for *_, part in work.pieces.tolist() if part >= 0)
    assert parts == list(range(work.num_parts))
    of_block = {}
    for first, *_, part in work.pieces.tolist():
        if part >= 0:
            of_block.setdefault(first, []).append(part)
    for first, _, first_part, count in work.joins.tolist():
        assert sorted(of_block.pop(first)) == list(range(first_part, first_part + count))
        assert 2 <= count <= work.most_parts
    assert not of_block


@given(st.integers(0, 40_000), st.integers(1, 4096), st.sampled_from([256, 512, 1024, 2048]))
def test_no_piece_is_much_longer_than_the_limit(prefix, seen, limit):
    """New tokens are not cut, so the first piece has theirs at least."""
    (begin, end, new), *others = cut(prefix, seen, limit)
    assert (begin, new) == (0, seen)
    assert end + new <= max(1.25 * limit, seen)
    assert all(b % 64 == 0 and 0 < e - b <= limit and n == 0 for b, e, n in others)


def test_a_short_prompt_after_a_long_prefix_is_cut_and_equal_blocks_are_not(monkeypatch):
    """132 multiprocessors take 250 programs. 8 heads of one block: 8 x 32832 / 250 = 1050 keys are
    fair, so 1024; beside 30 blocks of 4000 keys it is 4890, so 2048. 40 blocks of 5000 keys are
    320 programs with 1.28 fair shares of 250 in all, none more than its share."""
    assert piece_limit([64 + 32768], 8, 132) == 1024
    assert piece_limit([64 + 32768, *[4000] * 30], 8, 132) == 2048
    assert piece_limit([5000] * 40, 8, 132) is None
    assert piece_limit([], 8, 132) is None
    monkeypatch.setattr(module, "num_multiprocessors", lambda _: 132)
    work = make_work([(64, 32768), (20, 100)], 64, 8)
    assert work.joins.tolist() == [[0, 64, 0, 33]]
    assert work.pieces[0, 4:7].tolist() == [0, 960, 64]
    assert [64, 20, 1, 64, 0, 100, 20, -1] in work.pieces.tolist()


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="query_rows is 0"):
        make_work([(1, 0)], 0, 1)
    with pytest.raises(ValueError, match="negative"):
        make_work([(1, -1)], 16, 1)
