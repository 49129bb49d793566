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


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_norm_normalises_each_head(activation, randn):
    x, wide, weight = randn(3, 4, 16), randn(3, 100), randn(16)
    gate = wide[:, 7:71]
    expected = naive.gated_norm(x, gate.unflatten(1, (4, 16)), weight, activation)
    assert relative_error(pointwise.gated_norm(x, gate, weight, activation), expected) < 1e-6


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


def test_channel_inputs_normalise_keys_and_make_a_decay_for_each_channel(randn):
    """Decay logits from -30 to 30, as above; two key heads for four value heads."""
    fused, a_log, dt_bias = randn(3, 150), randn(4), randn(4, 16)
    qk, b = fused[:, :64], fused[:, 140:144]
    f = randn(3, 70)[:, 3:67] * 15
    expected_qk = torch.nn.functional.normalize(qk.double().unflatten(1, (4, 16)), dim=-1)
    decay, strength = pointwise.channel_inputs(qk, f, b, a_log, dt_bias, 16)
    expected = naive.channel_gates(f.unflatten(1, (4, 16)), b, a_log, dt_bias)
    assert relative_error(qk, expected_qk.flatten(1)) < 1e-5
    assert relative_error(decay, expected[0]) < 1e-6
    assert relative_error(strength, expected[1]) < 1e-6


def test_norm_latent_leaves_the_rest_as_it_is(randn):
    x, weight = randn(3, 60)[:, 5:53], randn(32)
    out = pointwise.norm_latent(x, weight)
    assert relative_error(out[:, :32], naive.rms_norm(x[:, :32], weight)) < 1e-6
    assert torch.equal(out[:, 32:], x[:, 32:])
    assert out.is_contiguous()


def test_join_keys_gives_every_head_the_common_channels(randn):
    own, common = randn(3, 70)[:, 2:66], randn(3, 20)[:, 4:20]
    keys = pointwise.join_keys(own, common, 2)
    assert torch.equal(keys[..., :32], own.unflatten(1, (2, 32)))
    assert torch.equal(keys[..., 32:], common[:, None].expand(3, 2, 16))
