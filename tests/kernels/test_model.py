"""The whole model on the GPU: cutting a prompt into steps must not change what comes out."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.model.batch import StepShape, make_batch  # noqa: E402
from hybridsim.kernels.model.shapes import QWEN35_08B, SHAPES, ModelShape  # noqa: E402

from .helpers import relative_error  # noqa: E402

SMALL = ModelShape(
    name="small", num_layers=4, full_every=4, hidden=256, intermediate=512, vocabulary=1000,
    heads=4, kv_heads=2, head_size=64, rotary=16, key_heads=4, value_heads=4, key_size=64,
    value_size=64, conv_width=4,
)  # fmt: skip


def test_parameter_count_is_the_checkpoints():
    """752.4 M parameters (reference facts): matrices are all but 0.2 M norms and convolutions."""
    assert SHAPES["qwen3.5-0.8b"] is QWEN35_08B
    conv = QWEN35_08B.recurrent_layers * QWEN35_08B.conv_channels * 4
    assert QWEN35_08B.num_parameters + conv == pytest.approx(752.4e6, rel=2e-4)


@pytest.mark.gpu
def test_split_prefill_and_decode_steps_give_the_hidden_state_of_one_prefill():
    """80 tokens at once = 37 and 43 in two chunks = 78 and then two decode steps."""
    from hybridsim.kernels.model.model import HybridModel

    torch.manual_seed(0)
    model = HybridModel(SMALL, num_slots=8, num_pages=64)
    tokens = torch.arange(80, dtype=torch.int32, device="cuda") * 7 % 1000

    def run(chunks, contexts, first, last):
        """One step over tokens[first:last] of a request whose pages and slot follow the seed."""
        shape = StepShape(tuple(chunks), tuple(contexts))
        batch = make_batch(shape, model.num_pages, model.num_slots, 128, 64, seed=1)
        batch.tokens.copy_(tokens[first:last])
        return batch, model.hidden(batch)

    _, whole = run([(80, 0)], [], 0, 80)
    # The same seed draws the same slot; pages are drawn from the same permutation, last first.
    run([(37, 0)], [], 0, 37)
    _, second = run([(43, 37)], [], 37, 80)
    assert relative_error(second, whole) < 3e-2
    run([(78, 0)], [], 0, 78)
    run([], [78], 78, 79)
    _, stepped = run([], [79], 79, 80)
    assert relative_error(stepped, whole) < 3e-2
