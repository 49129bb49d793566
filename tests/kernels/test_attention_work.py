"""Pieces of attention prefill: each pair of a query and a key once, in even shares."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.attention import work as module  # noqa: E402
from hybridsim.kernels.attention.work import cut, make_work, makespan, piece_limit  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _card():
    """Work for a card of 132 multiprocessors, whatever this machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "num_multiprocessors", lambda _: 132)
        yield


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


@given(st.integers(0, 40_000), st.integers(1, 4096), st.sampled_from([256, 512, 2048, 8192]))
def test_no_piece_is_longer_than_the_limit(prefix, seen, limit):
    """New tokens are not cut, so the first piece has theirs at least."""
    (begin, end, new), *others = cut(prefix, seen, limit)
    assert (begin, new) == (0, seen)
    assert end + new <= max(limit, seen)
    assert all(b % 64 == 0 and 0 < e - b <= limit and n == 0 for b, e, n in others)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(1, 5), st.integers(4, 9))
def test_the_makespan_is_that_of_handing_out_the_longest_first(lengths, copies, machines):
    ends = [0] * machines
    for length in sorted(lengths * copies, reverse=True):
        ends[ends.index(min(ends))] += length
    assert makespan(lengths, copies, machines) == max(ends)


def test_many_jobs_fill_the_gaps_of_one_another():
    assert makespan([3] * 20, 2, 4) == 30.0
    assert makespan([3] * 40 + [400], 1, 4) == 400


def test_a_short_prompt_after_a_long_prefix_is_cut_and_blocks_that_fill_the_card_are_not():
    """132 multiprocessors. One block with 8 heads leaves 124 idle: 16 pieces of about 2048 keys on
    128 of them. 16 blocks of 8000 keys on 8 heads are 128 programs already; 24 are 192, two rounds
    where 1.45 would do."""
    assert piece_limit([(32768, 64)], 8, 132) == 2048
    assert piece_limit([(8000, 64)] * 16, 8, 132) is None
    assert piece_limit([(8000, 64)] * 24, 8, 132) is not None
    assert piece_limit([(0, 4096)], 8, 132) is None
    assert piece_limit([], 8, 132) is None


def test_pieces_of_a_block_and_where_their_results_go():
    """2048 keys a piece: 1984 of the prefix beside 64 new tokens, then the other 30784 in 16 even
    pieces, which are 1984 in whole tiles of 64."""
    work = make_work([(64, 32768), (20, 100)], 64, 8)
    assert work.joins.tolist() == [[0, 64, 0, 17]]
    assert work.pieces[0].tolist() == [0, 64, 0, 0, 0, 1984, 64, 0]
    assert work.pieces[1].tolist() == [0, 64, 0, 0, 1984, 3968, 0, 1]
    assert work.pieces[-1].tolist() == [64, 20, 1, 64, 0, 100, 20, -1]


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="query_rows is 0"):
        make_work([(1, 0)], 0, 1)
    with pytest.raises(ValueError, match="negative"):
        make_work([(1, -1)], 16, 1)
