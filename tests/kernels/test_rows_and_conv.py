"""Row copies and the short convolution against their naive twins."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels import conv, rows  # noqa: E402
from hybridsim.kernels.bench.probe_cases import WORDS, read  # noqa: E402
from hybridsim.kernels.conv.naive import causal_conv  # noqa: E402
from hybridsim.kernels.plan import SequenceTask, make_plan  # noqa: E402
from hybridsim.kernels.rows.naive import copy_rows as naive_copy_rows  # noqa: E402

from .helpers import relative_error  # noqa: E402


def int32(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((3, 7, 2, 4, 8), torch.float32),  # states of three layers
        ((2, 7, 5), torch.bfloat16),  # rows of 10 bytes: two-byte words
        ((1, 7, 3), torch.uint8),  # one-byte words
        ((2, 7, 4104), torch.float64),  # more than one block a row, with a tail
        ((2, 7), torch.float32),
    ],
    ids=str,
)
def test_rows_move_between_slots_in_all_layers(shape, dtype, device):
    generator = torch.Generator().manual_seed(0)
    pool = torch.randint(0, 255, shape, generator=generator).to(dtype).to(device)
    expected = pool.clone()
    sources, targets = int32([0, 0, 5], device), int32([3, 6, 1], device)
    rows.copy_rows(pool, sources, targets)
    naive_copy_rows(expected, sources, targets)
    assert torch.equal(pool, expected)


def test_copying_no_rows_changes_nothing(device):
    pool = torch.ones(2, 3, 4, device=device)
    rows.copy_rows(pool, int32([], device), int32([], device))
    assert torch.equal(pool, torch.ones(2, 3, 4, device=device))


@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no_bias"])
def test_conv_prefill_of_packed_sequences_equals_naive(with_bias, device):
    """In-place slots, sequences shorter than the state, checkpoints inside the first tokens."""
    tasks = [
        SequenceTask(19, read_slot=0, write_slot=0, checkpoints=((1, 1), (2, 2), (16, 3))),
        SequenceTask(1, read_slot=4, write_slot=4),
        SequenceTask(2, read_slot=5, write_slot=5, checkpoints=((0, 6),)),
        SequenceTask(0, read_slot=7, write_slot=8),
        SequenceTask(2, write_slot=9),
    ]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(24, 50, generator=generator).to(device)[:, 5:45]
    weight = torch.randn(40, 4, generator=generator).to(device)
    bias = torch.randn(40, generator=generator).to(device) if with_bias else None
    states = torch.randn(10, 3, 40, generator=generator).to(device)
    before = states.clone()
    y = conv.prefill(x, weight, bias, states, make_plan(tasks, 16, device))
    first = 0
    for task in tasks:
        part = x[first : first + task.num_tokens]
        initial = None if task.read_slot < 0 else before[task.read_slot]
        expected, after = causal_conv(part, weight, bias, initial)
        if task.num_tokens:
            assert relative_error(y[first : first + task.num_tokens], expected) < 1e-6
        for position, slot in (*task.checkpoints, (task.num_tokens, task.write_slot)):
            torch.testing.assert_close(states[slot].double(), after[position], atol=0, rtol=0)
        first += task.num_tokens
    assert torch.equal(states[7], before[7])


def test_conv_decode_steps_equal_one_prefill(device):
    """Six single tokens of two requests in scattered slots; unused slots hold NaN."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(6, 2, 40, generator=generator).to(device)
    weight = torch.randn(40, 4, generator=generator).to(device)
    states = torch.full((4, 3, 40), float("nan"), device=device)
    states[[3, 1]] = torch.randn(2, 3, 40, generator=generator).to(device)
    initial = states[[3, 1]]
    slots = int32([3, 1], device)
    steps = torch.stack([conv.decode(x[t], weight, None, states, slots) for t in range(6)])
    for n, slot in enumerate((3, 1)):
        expected, after = causal_conv(x[:, n], weight, None, initial[n])
        assert relative_error(steps[:, n], expected) < 1e-6
        torch.testing.assert_close(states[slot].double(), after[-1], atol=0, rtol=0)
    assert states[[0, 2]].isnan().all()


def test_the_reading_probe_reads_every_number(device):
    """Three programs of two blocks: no number left out, none counted twice."""
    x = torch.arange(6 * WORDS, dtype=torch.int32, device=device)
    expected = x.view(3, 2 * WORDS).sum(dim=1, dtype=torch.int64)
    assert torch.equal(read(x, blocks=2).long(), expected)
