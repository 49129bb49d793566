"""Pointwise operators against their float64 twins."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels import pointwise  # noqa: E402
from hybridsim.kernels.pointwise import naive  # noqa: E402

from .helpers import relative_error  # noqa: E402


@pytest.fixture
def randn(device):
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator).to(device)


def test_add_norm_adds_to_the_residual_and_normalises_it(randn):
    x, residual, weight = randn(3, 40), randn(3, 40), randn(40)
    summed = residual + x
    out = pointwise.add_norm(x, residual, weight)
    assert torch.equal(residual, summed)
    assert relative_error(out, naive.rms_norm(summed, weight)) < 1e-6
    assert relative_error(pointwise.add_norm(None, residual, weight), out) < 1e-6
    assert torch.equal(residual, summed)


def test_silu_mul_joins_the_halves(randn):
    x = randn(3, 2 * 1030)
    assert relative_error(pointwise.silu_mul(x), naive.silu_mul(x)) < 1e-6


def test_gated_norm_normalises_each_head(randn):
    x, wide, weight = randn(3, 4, 16), randn(3, 100), randn(16)
    gate = wide[:, 7:71]
    expected = naive.gated_norm(x, gate.unflatten(1, (4, 16)), weight)
    assert relative_error(pointwise.gated_norm(x, gate, weight), expected) < 1e-6


def test_delta_inputs_normalise_keys_and_make_gates(randn):
    """Decay logits from -30 to 30, so that softplus meets both of its limits."""
    fused, a_log, dt_bias = randn(3, 150), randn(4), randn(4)
    qk, ab = fused[:, :128], fused[:, 130:138]
    ab *= 15
    expected_qk = torch.nn.functional.normalize(qk.double().unflatten(1, (8, 16)), dim=-1)
    decay, strength = pointwise.delta_inputs(qk, ab, a_log, dt_bias, 16)
    expected_decay, expected_strength = naive.delta_gates(ab[:, :4], ab[:, 4:], a_log, dt_bias)
    assert relative_error(qk, expected_qk.flatten(1)) < 1e-5
    assert relative_error(decay, expected_decay) < 1e-6
    assert relative_error(strength, expected_strength) < 1e-6


def test_norm_rotate_turns_the_first_channels_only(randn, device):
    fused, weight = randn(3, 100), randn(32)
    x = fused[:, 2:66].unflatten(1, (2, 32))
    positions = torch.tensor([0, 5, 1000], dtype=torch.int32, device=device)
    out = pointwise.norm_rotate(x, weight, positions, 16)
    expected = naive.rotate(naive.rms_norm(x, weight), positions, 16, 1e7)
    assert relative_error(out, expected) < 1e-4  # the angle is float32: 1000 rad to 6e-5


def test_sigmoid_gate_scales_in_place(randn):
    x, wide = randn(3, 40), randn(3, 90)
    expected = x.double() * torch.sigmoid(wide[:, 3:43].double())
    assert relative_error(pointwise.sigmoid_gate(x, wide[:, 3:43]), expected) < 1e-6
