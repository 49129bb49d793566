"""The tables that kernels read: every token in one chunk, every save at a segment's end."""

import pytest

pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hybridsim.kernels.plan import NO_SLOT, SequenceTask, make_plan  # noqa: E402


@st.composite
def tasks(draw):
    """A sequence of up to 100 tokens with up to 4 checkpoints, positions rising."""
    num_tokens = draw(st.integers(0, 100))
    positions = draw(st.lists(st.integers(0, num_tokens), max_size=4).map(sorted))
    slots = draw(st.lists(st.integers(0, 9), min_size=len(positions), max_size=len(positions)))
    write_slot = draw(st.sampled_from([NO_SLOT, 20]))
    return SequenceTask(num_tokens, 3, write_slot, tuple(zip(positions, slots, strict=True)))


@given(st.lists(tasks(), max_size=5), st.sampled_from([1, 16, 64]))
def test_chunks_tile_the_tokens_and_saves_are_where_they_were_asked(batch, chunk_size):
    plan = make_plan(batch, chunk_size)
    covered = [
        (token, sequence)
        for first, length, sequence in plan.chunks.tolist()
        for token in range(first, first + length)
    ]
    expected = [n for n, task in enumerate(batch) for _ in range(task.num_tokens)]
    assert covered == list(enumerate(expected))
    assert all(1 <= length <= chunk_size for _, length, _ in plan.chunks.tolist())
    segments = plan.segments.tolist()
    for task, (at, count, read_slot, first) in zip(batch, plan.sequences.tolist(), strict=True):
        mine = segments[at : at + count]
        assert read_slot == task.read_slot
        assert sum(length for _, length, _ in mine) == task.num_tokens
        saves = [(start + length - first, slot) for start, length, slot in mine if slot != NO_SLOT]
        wanted = list(task.checkpoints)
        if task.write_slot != NO_SLOT:
            wanted.append((task.num_tokens, task.write_slot))
        assert saves == wanted


@pytest.mark.parametrize("checkpoints", [((5, 0),), ((2, 0), (1, 1)), ((-1, 0),)])
def test_checkpoints_outside_or_out_of_order_are_refused(checkpoints):
    with pytest.raises(ValueError, match="checkpoint at"):
        make_plan([SequenceTask(4, checkpoints=checkpoints)])
