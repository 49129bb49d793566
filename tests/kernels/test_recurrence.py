"""The recurrence family against its naive twin, and the laws that hold for every rule."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.plan import SequenceTask, make_plan  # noqa: E402
from hybridsim.kernels.recurrence import (  # noqa: E402
    GATED_DELTA,
    RULES,
    decode,
    prefill,
    replay,
    run_tokens,
    verify,
)
from hybridsim.kernels.recurrence.chunked import check_chunk_size  # noqa: E402
from hybridsim.kernels.recurrence.naive import recurrence  # noqa: E402

from .helpers import draw, draw_equal_keys, relative_error  # noqa: E402

ALL_RULES = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


def int32(values: list[int], device: str) -> "torch.Tensor":
    return torch.tensor(values, dtype=torch.int32, device=device)


def random_states(slots: int, heads: int, key: int, value: int, device: str) -> "torch.Tensor":
    generator = torch.Generator().manual_seed(9)
    return torch.randn(slots, heads, key, value, generator=generator).to(device)


def test_naive_delta_rules_are_the_papers_matrix_products():
    """S_t = a_t (I - b_t k_t^T k_t) S_{t-1} + b_t k_t^T v_t, o_t = q_t S_t, one head."""
    for rule in (RULES["gated_delta"], RULES["delta"], RULES["kda"]):
        x = draw(rule, 8, 6, 1, 1, 16, 16)
        out, states = recurrence(rule, *x.parts())
        state = torch.zeros(16, 16, dtype=torch.float64)
        for t in range(6):
            k, v, q = (y[t].double() for y in (x.k, x.v, x.q))
            b = x.strength[t, 0].double()
            a = torch.ones(16) if x.log_decay is None else x.log_decay[t, 0].exp().expand(16)
            forget = torch.eye(16, dtype=torch.float64) - b * k.T @ k
            state = forget @ torch.diag(a.double()) @ state + b * k.T @ v
            torch.testing.assert_close(out[t], q @ state)
        torch.testing.assert_close(states[-1][0], state)


def test_naive_ssd_is_mamba2_as_its_paper_writes_it():
    """h_t = exp(dt A) h_{t-1} + dt x_t B_t^T (h of [P, N]), y_t = h_t C_t; heads share B and C."""
    x = draw(RULES["ssd"], 9, 5, 1, 2, 16, 8)
    out, _ = recurrence(RULES["ssd"], *x.parts())
    for head in range(2):
        h = torch.zeros(8, 16, dtype=torch.float64)
        for t in range(5):
            dt = x.strength[t, head].double()
            write = torch.outer(x.v[t, head], x.k[t, 0]).double()
            h = x.log_decay[t, head].double().exp() * h + dt * write
            torch.testing.assert_close(out[t, head], h @ x.q[t, 0].double())


def test_naive_linear_attention_is_the_decayed_sum_of_outer_products():
    """o_t = sum over j <= t of exp(g_{j+1} + ... + g_t) (q_t . k_j) v_j: no state at all."""
    x = draw(RULES["linear"], 10, 7, 1, 1, 16, 8)
    out, _ = recurrence(RULES["linear"], *x.parts())
    total = x.log_decay[:, 0].double().cumsum(0)
    for t in range(7):
        overlap = x.k[: t + 1, 0].double() @ x.q[t, 0].double()
        weights = overlap * (total[t] - total[: t + 1]).exp()
        torch.testing.assert_close(out[t, 0], weights @ x.v[: t + 1, 0].double())


@ALL_RULES
@pytest.mark.parametrize("tolerance", [1e-5, 1e-2], ids=["fp32", "half"])
def test_prefill_of_packed_sequences_equals_naive(rule, tolerance, device, half_dtype):
    """Tails, one token, an empty sequence, checkpoints off the grid, 24 value channels."""
    dtype = torch.float32 if tolerance < 1e-4 else half_dtype
    tasks = [
        SequenceTask(37, read_slot=0, write_slot=0, checkpoints=((5, 1), (16, 2), (37, 3))),
        SequenceTask(1, read_slot=4, write_slot=5),
        SequenceTask(0, read_slot=4, write_slot=6),
        SequenceTask(16, write_slot=7, checkpoints=((0, 8),)),
    ]
    x = draw(rule, 1, 54, 2, 4, 16, 24, dtype, device)
    states = random_states(9, 4, 16, 24, device)
    before = states.clone()
    out = prefill(rule, *x.parts(), states, make_plan(tasks, 16, device), scale=0.3)
    first = 0
    for task in tasks:
        part = x[slice(first, first + task.num_tokens)]
        initial = None if task.read_slot < 0 else before[task.read_slot]
        expected, after = recurrence(rule, *part.parts(), initial, scale=0.3)
        if task.num_tokens:
            actual = out[first : first + task.num_tokens]
            assert relative_error(actual, expected) < tolerance
        for position, slot in (*task.checkpoints, (task.num_tokens, task.write_slot)):
            assert relative_error(states[slot], after[position]) < tolerance
        first += task.num_tokens
    assert torch.equal(states[4], before[4])


@ALL_RULES
def test_chunked_equals_recurrent_as_in_the_handbook(rule, device):
    """T 64, d 16, C 16, float32: outputs and final state agree within 1e-5."""
    x = draw(rule, 2, 64, 1, 1, 16, 16, device=device)
    states = torch.zeros(2, 1, 16, 16, device=device)
    plan = make_plan([SequenceTask(64, write_slot=0)], 16, device)
    chunked = prefill(rule, *x.parts(), states, plan)
    save = int32([-1] * 63 + [1], device)
    one = int32([0], device)
    stepped = run_tokens(
        rule, *x.parts(), states, one, int32([64], device), int32([-1], device), save
    )
    torch.testing.assert_close(chunked, stepped, atol=1e-5, rtol=0)
    torch.testing.assert_close(states[0], states[1], atol=1e-5, rtol=0)


@ALL_RULES
def test_one_prefill_equals_split_prefill_and_steps(rule, device):
    """One prefill of 64 = 32 prefilled and 32 single steps = three chunks of 20, 25 and 19."""
    x = draw(rule, 3, 64, 1, 2, 16, 16, device=device)
    states = torch.zeros(3, 2, 16, 16, device=device)
    whole = prefill(rule, *x.parts(), states, make_plan([SequenceTask(64, -1, 0)], 16, device))
    parts, first = [], 0
    for length in (20, 25, 19):
        task = SequenceTask(length, read_slot=1 if first else -1, write_slot=1)
        piece = x[slice(first, first + length)]
        parts.append(prefill(rule, *piece.parts(), states, make_plan([task], 16, device)))
        first += length
    half = make_plan([SequenceTask(32, -1, 2)], 16, device)
    steps = [prefill(rule, *x[:32].parts(), states, half)]
    slot, index = int32([2], device), int32([0], device)
    for t in range(32, 64):
        steps.append(decode(rule, *x[slice(t, t + 1)].parts(), states, slot, index))
    torch.testing.assert_close(torch.cat(parts), whole, atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cat(steps), whole, atol=1e-4, rtol=0)
    torch.testing.assert_close(states[1], states[0], atol=1e-4, rtol=0)
    torch.testing.assert_close(states[2], states[0], atol=1e-4, rtol=0)


@ALL_RULES
@pytest.mark.parametrize("state_dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_decode_updates_only_its_slots(rule, state_dtype, device):
    """A batch in scattered slots; the other slots hold NaN and must neither be read nor written."""
    x = draw(rule, 4, 3, 1, 2, 16, 24, torch.bfloat16, device)
    states = torch.full((7, 2, 16, 24), float("nan"), device=device).to(state_dtype)
    used = [5, 0, 3]
    states[used] = random_states(3, 2, 16, 24, device).to(state_dtype)
    before = states.clone()
    slots, index = int32(used, device), int32([0, 1, 2], device)
    out = decode(rule, *x.parts(), states, slots, index, scale=0.25)
    for row, slot in enumerate(used):
        part = x[slice(row, row + 1)]
        expected, after = recurrence(rule, *part.parts(), before[slot], scale=0.25)
        assert relative_error(out[row], expected[0]) < 1e-2
        tolerance = 1e-6 if state_dtype == torch.float32 else 4e-3
        assert relative_error(states[slot], after[-1]) < tolerance
    assert states[[1, 2, 4, 6]].isnan().all()


@ALL_RULES
def test_verify_keeps_one_state_per_draft_and_replay_reaches_the_same(rule, device):
    """Accepting m of 4 drafts: the state kept by verify = the state that replay computes."""
    x = draw(rule, 5, 12, 1, 2, 16, 16, device=device)
    states = random_states(18, 2, 16, 16, device)
    before = states.clone()
    read = int32([0, 1, 2], device)
    drafts = torch.arange(3, 15, dtype=torch.int32, device=device).reshape(3, 4)
    out = verify(rule, *x.parts(), states, read, drafts)
    for n in range(3):
        part = x[slice(4 * n, 4 * n + 4)]
        expected, after = recurrence(rule, *part.parts(), before[n])
        assert relative_error(out[4 * n : 4 * n + 4], expected) < 1e-5
        assert relative_error(states[drafts[n].long()], after[1:]) < 1e-5
    assert torch.equal(states[:3], before[:3])
    accepted = [0, 2, 4]
    replay(rule, *x.parts()[1:], states, read, int32(accepted, device), 4)
    for n, m in enumerate(accepted):
        expected_state = before[n] if m == 0 else states[int(drafts[n, m - 1])]
        torch.testing.assert_close(states[n], expected_state, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-4, 5e-2], ids=["fp32", "half"])
def test_equal_keys_do_not_break_the_triangular_solve(tolerance, device, half_dtype):
    """One key repeated: the worst case for a series of powers; the true state stays bounded."""
    dtype = torch.float32 if tolerance < 1e-3 else half_dtype
    x = draw_equal_keys(128, 16, dtype, device)
    states = torch.zeros(1, 1, 32, 16, device=device)
    plan = make_plan([SequenceTask(128, -1, 0)], 64, device)
    out = prefill(GATED_DELTA, *x.parts(), states, plan)
    expected, _ = recurrence(GATED_DELTA, *x.parts())
    assert relative_error(out, expected) < tolerance


@pytest.mark.parametrize("strongest", [2.0, 40.0])
def test_kda_stands_mild_and_violent_decay(strongest, device):
    """Up to e^-40 a token and channel: gaps of summed decay far beyond a float's exponent."""
    x = draw(RULES["kda"], 14, 70, 1, 2, 32, 16, device=device)
    x.log_decay.copy_(strongest / 8 * x.log_decay)
    states = torch.zeros(1, 2, 32, 16, device=device)
    plan = make_plan([SequenceTask(70, -1, 0)], 64, device)
    out = prefill(RULES["kda"], *x.parts(), states, plan)
    expected, after = recurrence(RULES["kda"], *x.parts())
    assert relative_error(out, expected) < 1e-5
    assert relative_error(states[0], after[-1]) < 1e-5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.update(log_decay=None), "decay head"),
        (lambda x: x.update(strength=None), "strength given or missing"),
        (lambda x: x.update(states=torch.zeros(1, 2, 16, 8)), "states must be"),
        (lambda x: x.update(q=x["q"][:3]), "q and k differ in shape"),
        (lambda x: x.update(q=x["q"][:3], k=x["k"][:3]), "k has 3 tokens, v 4"),
        (lambda x: x.update(v=x["v"].mT.contiguous().mT), "v: heads and channels not contiguous"),
        (lambda x: x.update(strength=x["strength"][:, :1]), "strength must be"),
        (lambda x: x.update(log_decay=x["log_decay"].T.contiguous().T), "log_decay must be cont"),
        (lambda x: x.update(out=torch.empty(5, 2, 16)), r"out must be contiguous \[4, 2, 16\]"),
        (lambda x: x.update(plan=make_plan([SequenceTask(3)])), "plan has 3 tokens"),
        (lambda x: x.update(plan=make_plan([SequenceTask(4)], 24)), "chunk size 24"),
        (lambda x: x.update(plan=make_plan([SequenceTask(4)], 64)), "at least 32 channels"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change, message):
    x = draw(GATED_DELTA, 7, 4, 1, 2, 16, 16)
    kwargs = {
        "q": x.q, "k": x.k, "v": x.v, "log_decay": x.log_decay, "strength": x.strength,
        "states": torch.zeros(1, 2, 16, 16), "plan": make_plan([SequenceTask(4)], 16),
    }  # fmt: skip
    change(kwargs)
    with pytest.raises(ValueError, match=message):
        prefill(GATED_DELTA, **kwargs)


def test_long_chunks_with_decay_per_channel_are_refused():
    x = draw(RULES["kda"], 7, 4, 1, 2, 32, 16)
    plan = make_plan([SequenceTask(4)], 128)
    with pytest.raises(ValueError, match="128 with decay per channel; allowed: at most 64"):
        prefill(RULES["kda"], *x.parts(), torch.zeros(1, 2, 32, 16), plan)


def test_chunks_that_a_gpu_was_seen_to_get_wrong_are_refused():
    """KDA with 32 bfloat16 channels in chunks of 64; float32 and 128 channels are right there."""
    with pytest.raises(ValueError, match="32 half-precision channels on a GPU; allowed"):
        check_chunk_size(RULES["kda"], 64, 32, is_half_on_gpu=True)
    check_chunk_size(RULES["kda"], 64, 128, is_half_on_gpu=True)
    check_chunk_size(RULES["kda"], 32, 32, is_half_on_gpu=True)
    check_chunk_size(RULES["kda"], 64, 32, is_half_on_gpu=False)
    check_chunk_size(GATED_DELTA, 64, 32, is_half_on_gpu=True)


@pytest.mark.gpu
@ALL_RULES
@pytest.mark.parametrize("repeats", [1, 8])
def test_prefill_of_one_and_of_many_sequences(rule, repeats, device):
    """Few and many tiles make the scan take narrow and wide blocks of the state."""
    value_size = 64 if rule.name == "ssd" else 128
    x = draw(rule, 13, 200, 16, 16, 128, value_size, torch.bfloat16, device)
    many = [None if y is None else y.repeat(repeats, *[1] * (y.dim() - 1)) for y in x.parts()]
    states = torch.zeros(repeats, 16, 128, value_size, device=device)
    plan = make_plan([SequenceTask(200, -1, n) for n in range(repeats)], 64, device)
    out = prefill(rule, *many, states, plan).view(repeats, 200, 16, value_size)
    expected, after = recurrence(rule, *x.parts())
    for n in range(repeats):
        assert relative_error(out[n], expected) < 1e-2
        assert relative_error(states[n], after[-1]) < 1e-2


@pytest.mark.gpu
@ALL_RULES
@pytest.mark.parametrize("heads", [(16, 16), (4, 8)], ids=str)
@pytest.mark.parametrize("chunk", [16, 32, 64, 128])
def test_prefill_at_model_sizes(rule, heads, chunk, device):
    """128 x 128 states (128 x 64 for SSD), bf16, three sequences, a checkpoint off the grid."""
    if chunk == 128 and rule.decay == "channel":
        pytest.skip("refused, see the test of inputs that do not fit")
    value_size = 64 if rule.name == "ssd" else 128
    lengths = (300, 1, 75)
    x = draw(rule, 11, sum(lengths), *heads, 128, value_size, torch.bfloat16, device)
    states = random_states(5, heads[1], 128, value_size, device)
    before = states.clone()
    tasks = [
        SequenceTask(300, 0, 0, ((130, 3), (256, 4))), SequenceTask(1, 1, 1), SequenceTask(75, 2, 2)
    ]  # fmt: skip
    out = prefill(rule, *x.parts(), states, make_plan(tasks, chunk, device), scale=128**-0.5)
    first = 0
    for n, length in enumerate(lengths):
        part = x[slice(first, first + length)]
        expected, after = recurrence(rule, *part.parts(), before[n], scale=128**-0.5)
        assert relative_error(out[first : first + length], expected) < 1e-2
        assert relative_error(states[n], after[-1]) < 1e-2
        if n == 0:
            assert relative_error(states[3], after[130]) < 1e-2
            assert relative_error(states[4], after[256]) < 1e-2
        first += length


@pytest.mark.gpu
@ALL_RULES
@pytest.mark.parametrize("batch", [1, 200])
def test_decode_at_model_sizes(rule, batch, device):
    value_size = 64 if rule.name == "ssd" else 128
    x = draw(rule, 12, batch, 8, 16, 128, value_size, torch.bfloat16, device)
    states = random_states(batch + 5, 16, 128, value_size, device)
    before = states.clone()
    slots = torch.randperm(batch + 5, device=device)[:batch].int()
    out = decode(rule, *x.parts(), states, slots, torch.arange(batch, device=device).int())
    for row in range(0, batch, 37):
        part = x[slice(row, row + 1)]
        expected, after = recurrence(rule, *part.parts(), before[slots[row].item()])
        assert relative_error(out[row], expected[0]) < 1e-2
        assert relative_error(states[slots[row].item()], after[-1]) < 1e-5
