"""The truth of the pointwise operators, in float64."""

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    x = x.double()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.double()


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(first half) * second half of the last axis."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up


def gated_norm(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, activation: str = "silu"
) -> torch.Tensor:
    """rms_norm over the last axis of x `[T, H, V]`, times silu or sigmoid of gate `[T, H, V]`."""
    gate = gate.double()
    factor = torch.sigmoid(gate)
    return rms_norm(x, weight) * (factor * gate if activation == "silu" else factor)


def delta_gates(
    a: torch.Tensor, b: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log decay -exp(a_log) softplus(a + dt_bias) and write strength sigmoid(b), all `[T, H]`."""
    softplus = torch.nn.functional.softplus(a.double() + dt_bias.double())
    return -torch.exp(a_log.double()) * softplus, torch.sigmoid(b.double())


def channel_gates(
    f: torch.Tensor, b: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """KDA's log decay -exp(a_log) softplus(f + dt_bias) `[T, H, K]` and sigmoid(b) `[T, H]`.

    f `[T, H, K]`, b `[T, H]`, a_log `[H]`, dt_bias `[H, K]`.
    """
    softplus = torch.nn.functional.softplus(f.double() + dt_bias.double())
    return -torch.exp(a_log.double())[:, None] * softplus, torch.sigmoid(b.double())


def rotate(x: torch.Tensor, positions: torch.Tensor, rotary: int, base: float) -> torch.Tensor:
    """Rotary position embedding of the first `rotary` channels of x `[T, H, D]`, halves paired."""
    x = x.double()
    half = rotary // 2
    powers = torch.arange(half, dtype=torch.float64, device=x.device) * 2 / rotary
    angle = positions.double()[:, None, None] / base**powers
    low, high, rest = x.split([half, half, x.shape[-1] - rotary], dim=-1)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], dim=-1)
