"""Inputs of Kimi Delta Attention: unit queries and keys, one decay a key channel."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.pointwise.fused import EPS


@triton.jit
def _channel_inputs_kernel(
    qk_ptr, f_ptr, b_ptr, a_log_ptr, dt_bias_ptr, decay_ptr, strength_ptr,
    qk_stride, f_stride, b_stride,
    QK_HEADS: tl.constexpr, K: tl.constexpr, H: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, K)[None, :]
    tile = tl.arange(0, QK_HEADS)[:, None] * K + channel
    qk = tl.load(qk_ptr + token * qk_stride + tile).to(tl.float32)
    qk *= tl.rsqrt(tl.sum(qk * qk, axis=1) + EPS)[:, None]
    tl.store(qk_ptr + token * qk_stride + tile, qk.to(qk_ptr.dtype.element_ty))
    head = tl.arange(0, H)
    tile = head[:, None] * K + channel
    f = tl.load(f_ptr + token * f_stride + tile).to(tl.float32)
    f += tl.load(dt_bias_ptr + tile).to(tl.float32)
    # softplus, linear where exp would overflow
    soft = tl.where(f > 20.0, f, tl.log(1.0 + tl.exp(tl.minimum(f, 20.0))))
    rate = tl.exp(tl.load(a_log_ptr + head).to(tl.float32))
    tl.store(decay_ptr + token * H * K + tile, -rate[:, None] * soft)
    b = tl.load(b_ptr + token * b_stride + head).to(tl.float32)
    tl.store(strength_ptr + token * H + head, tl.sigmoid(b).to(strength_ptr.dtype.element_ty))


def channel_inputs(
    qk: torch.Tensor,
    f: torch.Tensor,
    b: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    key_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise queries and keys in place and compute the gates of KDA.

    qk `[T, 2 Hk K]`, decay logits f `[T, H K]`, strength logits b `[T, H]`: token strides free;
    a_log `[H]`, dt_bias `[H K]`. Returns log decay -exp(a_log) softplus(f + dt_bias), float32
    `[T, H, K]`, and strength sigmoid(b) `[T, H]`. Head counts are powers of two.
    """
    tokens, heads = b.shape
    decay = torch.empty(tokens, heads, key_size, dtype=torch.float32, device=f.device)
    strength = f.new_empty(tokens, heads)
    if tokens:
        _channel_inputs_kernel[(tokens,)](
            qk, f, b, a_log, dt_bias, decay, strength, qk.stride(0), f.stride(0), b.stride(0),
            QK_HEADS=qk.shape[1] // key_size, K=key_size, H=heads, EPS=EPS,
        )  # fmt: skip
    return decay, strength
