"""The gated delta rule in chunks of 64, 128 and 256 tokens, worked in blocks, against the truth."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hybridsim.kernels.plan import SequenceTask, make_plan  # noqa: E402
from hybridsim.kernels.recurrence import (  # noqa: E402
    GATED_DELTA,
    blocked_scan,
    prefill,
    prefill_blocked,
)
from hybridsim.kernels.recurrence.naive import recurrence  # noqa: E402

from .helpers import Inputs, draw, draw_equal_keys, relative_error  # noqa: E402

ALL_SIZES = pytest.mark.parametrize("size", [64, 128, 256])
# Of the drawn log decay, which forgets 100 tokens as good as wholly (-1.6 a token on average); a
# hundredth of it makes every block of a chunk matter to every later one.
ALL_DECAYS = pytest.mark.parametrize("share", [1.0, 0.01], ids=["strong", "mild"])


def random_states(slots: int, heads: int, key: int, value: int, device: str) -> "torch.Tensor":
    generator = torch.Generator().manual_seed(9)
    return torch.randn(slots, heads, key, value, generator=generator).to(device)


def check(
    x: Inputs, tasks: list[SequenceTask], size: int, states: "torch.Tensor", tolerance: float
) -> None:
    """Every output and every saved state of a packed batch against one token after another."""
    before = states.clone()
    plan = make_plan(tasks, size, states.device)
    out = prefill_blocked(*x.parts(), states, plan, scale=0.3)
    first, written = 0, set()
    for task in tasks:
        part = x[slice(first, first + task.num_tokens)]
        initial = None if task.read_slot < 0 else before[task.read_slot]
        expected, after = recurrence(GATED_DELTA, *part.parts(), initial, scale=0.3)
        if task.num_tokens:
            assert relative_error(out[first : first + task.num_tokens], expected) < tolerance
        for position, slot in (*task.checkpoints, (task.num_tokens, task.write_slot)):
            if slot >= 0:
                assert relative_error(states[slot], after[position]) < tolerance
                written.add(slot)
        first += task.num_tokens
    others = [slot for slot in range(states.shape[0]) if slot not in written]
    assert torch.equal(states[others], before[others])


@ALL_SIZES
@ALL_DECAYS
@pytest.mark.parametrize("tolerance", [1e-5, 1e-2], ids=["fp32", "half"])
def test_packed_sequences_equal_naive(size, share, tolerance, device, half_dtype):
    """Tails in every block of a chunk, one token, an empty sequence, checkpoints off the grid and
    at its edges, one key head for two value heads, 24 value channels."""
    dtype = torch.float32 if tolerance < 1e-4 else half_dtype
    tasks = [
        SequenceTask(300, read_slot=0, write_slot=0, checkpoints=((5, 1), (261, 2), (300, 3))),
        SequenceTask(1, read_slot=4, write_slot=5),
        SequenceTask(0, read_slot=4, write_slot=6),
        SequenceTask(190, write_slot=7, checkpoints=((0, 8), (64, 9))),
    ]
    x = draw(GATED_DELTA, 1, 491, 1, 2, 32, 24, dtype, device)
    x.log_decay *= share
    check(x, tasks, size, random_states(11, 2, 32, 24, device), tolerance)


@given(
    st.sampled_from([64, 128, 256]),
    st.lists(
        st.tuples(st.integers(0, 280), st.booleans(), st.floats(0, 1)), min_size=1, max_size=3
    ),
    st.sampled_from([1.0, 0.01, 0.0]),
    st.integers(0, 2**16),
)
@settings(max_examples=15, deadline=None)
def test_any_lengths_and_checkpoints_equal_naive(size, drawn, decay, seed):
    """The n-th sequence reads slot n or none, saves its end to slot n and a checkpoint to 3 + n."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tasks = [
        SequenceTask(length, n if reads else -1, n, ((int(share * length), 3 + n),))
        for n, (length, reads, share) in enumerate(drawn)
    ]
    num_tokens = sum(task.num_tokens for task in tasks)
    x = draw(GATED_DELTA, seed, num_tokens, 1, 1, 32, 32, device=device)
    x.log_decay *= decay
    check(x, tasks, size, random_states(6, 1, 32, 32, device), 1e-5)


@pytest.mark.parametrize("size", [128, 256])
def test_wide_keys_are_walked_in_steps_of_one_block(size, device, monkeypatch):
    """A chunk of several steps: its tokens read the state at its start, not at their step's."""
    monkeypatch.setattr(blocked_scan, "LONG_STEP_BYTES", 0)
    x = draw(GATED_DELTA, 2, 333, 1, 2, 32, 32, device=device)
    x.log_decay *= 0.01
    tasks = [SequenceTask(333, 0, 1, ((140, 2),))]
    check(x, tasks, size, random_states(3, 2, 32, 32, device), 1e-5)


@pytest.mark.parametrize("tolerance", [1e-4, 5e-2], ids=["fp32", "half"])
def test_equal_keys_do_not_break_the_joins(tolerance, device, half_dtype):
    """One key repeated over a whole chunk: every block's writes nearly cancel the one before."""
    dtype = torch.float32 if tolerance < 1e-3 else half_dtype
    x = draw_equal_keys(256, 32, dtype, device)
    tasks = [SequenceTask(256, 0, 1)]
    check(x, tasks, 256, random_states(2, 1, 32, 32, device), tolerance)


@ALL_SIZES
def test_mild_decay_after_strong_keeps_its_digits(size, device):
    """e^-40 a token for two blocks, then e^-0.01: summed over a chunk, log decay would reach -5120,
    where float32 numbers are 4.9e-4 apart, and differences of such sums be wrong by that much."""
    x = draw(GATED_DELTA, 8, 256, 1, 2, 32, 32, device=device)
    x.log_decay[:128] = -40.0
    x.log_decay[128:] = -0.01
    check(x, [SequenceTask(256, 0, 1)], size, random_states(2, 2, 32, 32, device), 1e-5)


@ALL_SIZES
def test_a_token_sees_nothing_after_it(size, device):
    """Other tokens from 150 on change no output before, to the last bit."""
    x = draw(GATED_DELTA, 3, 256, 1, 1, 32, 32, device=device)
    other = draw(GATED_DELTA, 4, 256, 1, 1, 32, 32, device=device)
    plan = make_plan([SequenceTask(256)], size, device)
    states = torch.zeros(1, 1, 32, 32, device=device)
    mixed = [torch.cat([a[:150], b[150:]]) for a, b in zip(x.parts(), other.parts(), strict=True)]
    out, changed = (prefill_blocked(*parts, states, plan) for parts in (x.parts(), mixed))
    assert torch.equal(out[:150], changed[:150])
    assert not torch.equal(out[150:], changed[150:])


def test_states_in_bfloat16_and_a_given_output(device):
    """Saved states are rounded to 8 bits, by at most 2^-8 of each number; `out` is filled."""
    x = draw(GATED_DELTA, 5, 130, 1, 2, 32, 32, device=device)
    states = random_states(2, 2, 32, 32, device).to(torch.bfloat16)
    expected, after = recurrence(GATED_DELTA, *x.parts(), states[0], scale=0.5)
    out = torch.full_like(x.v, float("nan")).contiguous()
    plan = make_plan([SequenceTask(130, 0, 1)], 128, device)
    assert prefill_blocked(*x.parts(), states, plan, 0.5, out) is out
    assert relative_error(out, expected) < 1e-5
    assert relative_error(states[1], after[-1]) < 2**-8


def test_no_tokens_and_no_sequences(device):
    """Empty sequences pass their state on; no sequence at all changes nothing."""
    x = draw(GATED_DELTA, 5, 0, 1, 1, 32, 32, device=device)
    for tasks in ([], [SequenceTask(0, 0, 1), SequenceTask(0, -1, 2)]):
        check(x, tasks, 256, random_states(3, 1, 32, 32, device), 1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.update(plan=make_plan([SequenceTask(4)], 32)), "32 in blocks; allowed: 64"),
        (lambda x: x.update(plan=make_plan([SequenceTask(4)], 512)), "512 in blocks; allowed: 64"),
        (lambda x: x.update(plan=make_plan([SequenceTask(3)])), "plan has 3 tokens"),
        (lambda x: x.update(strength=None), "strength given or missing"),
        (lambda x: x.update(states=torch.zeros(1, 2, 32, 8)), "states must be"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change, message):
    x = draw(GATED_DELTA, 7, 4, 1, 2, 32, 16)
    kwargs = {
        "q": x.q, "k": x.k, "v": x.v, "log_decay": x.log_decay, "strength": x.strength,
        "states": torch.zeros(1, 2, 32, 16), "plan": make_plan([SequenceTask(4)]),
    }  # fmt: skip
    change(kwargs)
    with pytest.raises(ValueError, match=message):
        prefill_blocked(**kwargs)


def test_narrow_keys_are_refused():
    x = draw(GATED_DELTA, 7, 4, 1, 2, 16, 16)
    with pytest.raises(ValueError, match="16 channels in blocks; allowed: at least 32"):
        prefill_blocked(*x.parts(), torch.zeros(1, 2, 16, 16), make_plan([SequenceTask(4)]))


@pytest.mark.gpu
@ALL_SIZES
@ALL_DECAYS
@pytest.mark.parametrize("heads", [(16, 16), (4, 8)], ids=str)
def test_at_model_sizes(size, share, heads, device):
    """128 x 128 states, bf16, three sequences, checkpoints off the grid and at a chunk's end."""
    x = draw(GATED_DELTA, 11, 876, *heads, 128, 128, torch.bfloat16, device)
    x.log_decay *= share
    tasks = [
        SequenceTask(800, 0, 0, ((130, 3), (386, 4))), SequenceTask(1, 1, 1), SequenceTask(75, 2, 2)
    ]  # fmt: skip
    check(x, tasks, size, random_states(5, heads[1], 128, 128, device), 1e-2)


@pytest.mark.gpu
@ALL_SIZES
@pytest.mark.parametrize("repeats", [1, 8])
def test_one_and_many_sequences_equal_the_ordinary_form(size, repeats, device):
    """Few and many tiles make the scan take narrow and wide blocks of the state."""
    x = draw(GATED_DELTA, 13, 600 * repeats, 16, 16, 128, 128, torch.bfloat16, device)
    x.log_decay *= 0.01
    tasks = [SequenceTask(600, -1, n) for n in range(repeats)]
    states, expected_states = (torch.zeros(repeats, 16, 128, 128, device=device) for _ in range(2))
    out = prefill_blocked(*x.parts(), states, make_plan(tasks, size, device))
    expected = prefill(GATED_DELTA, *x.parts(), expected_states, make_plan(tasks, 64, device))
    assert relative_error(out, expected) < 1e-2
    assert relative_error(states, expected_states) < 1e-2
