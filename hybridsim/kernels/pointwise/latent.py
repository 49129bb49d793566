"""What lies between the matrix products of latent attention: the latent's norm, keys of heads."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.pointwise.fused import EPS


@triton.jit
def _norm_latent_kernel(
    x_ptr, weight_ptr, out_ptr, x_stride,
    D: tl.constexpr, R: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, D)
    x = tl.load(x_ptr + token * x_stride + column).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / D + EPS)
    x *= scale * tl.load(weight_ptr + column).to(tl.float32)
    out_row = out_ptr + token * (D + R)
    tl.store(out_row + column, x.to(out_ptr.dtype.element_ty))
    rest = D + tl.arange(0, R)
    tl.store(out_row + rest, tl.load(x_ptr + token * x_stride + rest))


def norm_latent(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMS norm of the first D channels of x `[T, D + R]` (token stride free), the rest copied.

    weight `[D]`; D and R are powers of two. Returns `[T, D + R]`, contiguous.
    """
    out = x.new_empty(x.shape)
    size = weight.shape[0]
    if x.shape[0]:
        _norm_latent_kernel[(x.shape[0],)](
            x, weight, out, x.stride(0), D=size, R=x.shape[1] - size, EPS=EPS
        )
    return out


@triton.jit
def _join_kernel(
    own_ptr, common_ptr, out_ptr, own_stride, common_stride,
    H: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head, own, common = tl.arange(0, H)[:, None], tl.arange(0, D), tl.arange(0, R)
    values = tl.load(own_ptr + token * own_stride + head * D + own[None, :])
    out_rows = out_ptr + (token * H + head) * (D + R)
    tl.store(out_rows + own[None, :], values)
    values = tl.load(common_ptr + token * common_stride + common)[None, :]
    tl.store(out_rows + D + common[None, :], tl.broadcast_to(values, [H, R]))


def join_keys(own: torch.Tensor, common: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Keys `[T, H, D + R]`: a head's own D channels, then the R that all heads share.

    own `[T, H D]`, common `[T, R]`: token strides free; H, D and R are powers of two.
    """
    size, rest = own.shape[1] // num_heads, common.shape[1]
    out = own.new_empty(own.shape[0], num_heads, size + rest)
    if own.shape[0]:
        _join_kernel[(own.shape[0],)](
            own, common, out, own.stride(0), common.stride(0), H=num_heads, D=size, R=rest
        )
    return out
