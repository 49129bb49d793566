"""Norms, gates and rotary embedding of a hybrid layer, one launch each."""
# mypy: disallow-untyped-defs=False

import math
from typing import Literal

import torch
import triton
import triton.language as tl

EPS = 1e-6


@triton.jit
def _add_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, D: tl.constexpr, BLOCK: tl.constexpr,
    EPS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < D
    x = tl.load(residual_ptr + token * D + column, mask=inside, other=0.0).to(tl.float32)
    if x_ptr is not None:
        x += tl.load(x_ptr + token * D + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(
            residual_ptr + token * D + column, x.to(residual_ptr.dtype.element_ty), mask=inside
        )
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / D + EPS)
    weight = tl.load(weight_ptr + column, mask=inside, other=0.0).to(tl.float32)
    out = x * scale * weight
    tl.store(out_ptr + token * D + column, out.to(out_ptr.dtype.element_ty), mask=inside)


def add_norm(x: torch.Tensor | None, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """residual `[T, D]` += x (where given, in place); returns its RMS norm times weight `[D]`."""
    out = torch.empty_like(residual)
    size = residual.shape[1]
    if residual.shape[0]:
        _add_norm_kernel[(residual.shape[0],)](
            x, residual, weight, out, D=size, BLOCK=triton.next_power_of_2(size), EPS=EPS
        )
    return out


@triton.jit
def _silu_mul_kernel(x_ptr, out_ptr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(x_ptr + token * 2 * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + token * 2 * WIDTH + WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + token * WIDTH + column, out.to(out_ptr.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of gate_up `[T, 2 I]`, contiguous; returns `[T, I]`."""
    tokens, width = gate_up.shape
    out = gate_up.new_empty(tokens, width // 2)
    if tokens:
        _silu_mul_kernel[(tokens, triton.cdiv(width // 2, 1024))](
            gate_up, out, WIDTH=width // 2, BLOCK=1024
        )
    return out


@triton.jit
def _gated_norm_kernel(
    x_ptr, gate_ptr, weight_ptr, gate_stride,
    H: tl.constexpr, V: tl.constexpr, EPS: tl.constexpr, SILU: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, H)[:, None] * V + tl.arange(0, V)[None, :]
    x = tl.load(x_ptr + token * H * V + tile).to(tl.float32)
    gate = tl.load(gate_ptr + token * gate_stride + tile).to(tl.float32)
    weight = tl.load(weight_ptr + tl.arange(0, V)).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / V + EPS)
    out = x * scale[:, None] * weight[None, :] * tl.sigmoid(gate)
    if SILU:
        out *= gate
    tl.store(x_ptr + token * H * V + tile, out.to(x_ptr.dtype.element_ty))


def gated_norm(
    x: torch.Tensor,
    gate: torch.Tensor,
    weight: torch.Tensor,
    activation: Literal["silu", "sigmoid"] = "silu",
) -> torch.Tensor:
    """In place: RMS norm of x `[T, H, V]` per head times activation(gate `[T, H V]`).

    The gate's token stride is free; H and V are powers of two.
    """
    if x.shape[0]:
        _gated_norm_kernel[(x.shape[0],)](
            x, gate, weight, gate.stride(0), H=x.shape[1], V=x.shape[2], EPS=EPS,
            SILU=activation == "silu",
        )  # fmt: skip
    return x


@triton.jit
def _delta_inputs_kernel(
    qk_ptr, ab_ptr, a_log_ptr, dt_bias_ptr, decay_ptr, strength_ptr, qk_stride, ab_stride,
    QK_HEADS: tl.constexpr, K: tl.constexpr, H: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    tile = tl.arange(0, QK_HEADS)[:, None] * K + tl.arange(0, K)[None, :]
    qk = tl.load(qk_ptr + token * qk_stride + tile).to(tl.float32)
    qk *= tl.rsqrt(tl.sum(qk * qk, axis=1) + EPS)[:, None]
    tl.store(qk_ptr + token * qk_stride + tile, qk.to(qk_ptr.dtype.element_ty))
    head = tl.arange(0, H)
    a = tl.load(ab_ptr + token * ab_stride + head).to(tl.float32)
    a += tl.load(dt_bias_ptr + head).to(tl.float32)
    # softplus, linear where exp would overflow
    soft = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(tl.minimum(a, 20.0))))
    decay = -tl.exp(tl.load(a_log_ptr + head).to(tl.float32)) * soft
    tl.store(decay_ptr + token * H + head, decay)
    b = tl.load(ab_ptr + token * ab_stride + H + head).to(tl.float32)
    strength = tl.sigmoid(b).to(strength_ptr.dtype.element_ty)
    tl.store(strength_ptr + token * H + head, strength)


def delta_inputs(
    qk: torch.Tensor, ab: torch.Tensor, a_log: torch.Tensor, dt_bias: torch.Tensor, key_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise queries and keys in place and compute the gates of the gated delta rule.

    qk `[T, 2 Hk K]` and ab `[T, 2 H]` (decay logits, then strength logits): token strides free;
    a_log, dt_bias `[H]`. Returns log decay float32 and strength, both `[T, H]`.
    """
    tokens, heads = ab.shape[0], ab.shape[1] // 2
    decay = torch.empty(tokens, heads, dtype=torch.float32, device=ab.device)
    strength = ab.new_empty(tokens, heads)
    if tokens:
        _delta_inputs_kernel[(tokens,)](
            qk, ab, a_log, dt_bias, decay, strength, qk.stride(0), ab.stride(0),
            QK_HEADS=qk.shape[1] // key_size, K=key_size, H=heads, EPS=EPS,
        )  # fmt: skip
    return decay, strength


@triton.jit
def _norm_rotate_kernel(
    x_ptr, weight_ptr, positions_ptr, out_ptr, x_stride, log2_base,
    H: tl.constexpr, D: tl.constexpr, ROTARY: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, D)
    half: tl.constexpr = ROTARY // 2
    partner = tl.where(
        column < half, column + half, tl.where(column < ROTARY, column - half, column)
    )
    row = x_ptr + token * x_stride + head * D
    x = tl.load(row + column).to(tl.float32)
    other = tl.load(row + partner).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / D + EPS)
    x *= scale * tl.load(weight_ptr + column).to(tl.float32)
    other *= scale * tl.load(weight_ptr + partner).to(tl.float32)
    power = (column % half).to(tl.float32) * (2.0 / ROTARY)
    angle = tl.load(positions_ptr + token).to(tl.float32) * tl.exp2(-power * log2_base)
    sign = tl.where(column < half, -1.0, 1.0)
    turned = x * tl.cos(angle) + sign * other * tl.sin(angle)
    out = tl.where(column < ROTARY, turned, x)
    tl.store(out_ptr + (token * H + head) * D + column, out.to(out_ptr.dtype.element_ty))


def norm_rotate(
    x: torch.Tensor, weight: torch.Tensor, positions: torch.Tensor, rotary: int, base: float = 1e7
) -> torch.Tensor:
    """RMS norm per head, then rotary embedding of the first `rotary` channels.

    x `[T, H, D]` (heads and channels contiguous), weight `[D]`, positions int32 `[T]`; D a power of
    two. Returns `[T, H, D]`, contiguous.
    """
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.shape[0]:
        _norm_rotate_kernel[(x.shape[0], x.shape[1])](
            x, weight, positions, out, x.stride(0), math.log2(base),
            H=x.shape[1], D=x.shape[2], ROTARY=rotary, EPS=EPS, num_warps=1,
        )  # fmt: skip
    return out


@triton.jit
def _gate_kernel(x_ptr, gate_ptr, gate_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    x = tl.load(x_ptr + token * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + token * gate_stride + column, mask=inside, other=0.0).to(tl.float32)
    out = x * tl.sigmoid(gate)
    tl.store(x_ptr + token * WIDTH + column, out.to(x_ptr.dtype.element_ty), mask=inside)


def sigmoid_gate(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """In place: x `[T, W]` (contiguous) times sigmoid(gate `[T, W]`, token stride free)."""
    if x.shape[0]:
        _gate_kernel[(x.shape[0],)](
            x, gate, gate.stride(0), WIDTH=x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1])
        )
    return x
