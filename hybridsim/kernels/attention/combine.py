"""Joining the parts of an attention whose keys were split among programs."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.attention.work import PrefillWork


@triton.jit
def _join(
    acc_ptr, peak_ptr, norm_ptr, first, stride, count, channels,
    D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The weighted mean `[BLOCK_D]` of `count` parts, each `stride` after the one before."""
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    norm = 0.0
    peak = float("-inf")
    for at in range(0, count, BLOCK):
        split = at + tl.arange(0, BLOCK)
        part = first + split * stride
        exists = split < count
        peaks = tl.load(peak_ptr + part, mask=exists, other=float("-inf"))
        norms = tl.load(norm_ptr + part, mask=exists, other=0.0)
        parts_ptr = acc_ptr + part.to(tl.int64)[:, None] * D + channels[None, :]
        parts = tl.load(parts_ptr, mask=exists[:, None], other=0.0)
        new_peak = tl.maximum(peak, tl.max(peaks, axis=0))
        shrink = tl.exp2(peak - new_peak)
        weights = tl.exp2(peaks - new_peak)
        total = total * shrink + tl.sum(parts * weights[:, None], axis=0)
        norm = norm * shrink + tl.sum(norms * weights, axis=0)
        peak = new_peak
    return total / norm


@triton.jit(do_not_specialize=["split_tokens", "num_splits"])
def _combine_kernel(
    acc_ptr, peak_ptr, norm_ptr, lengths_ptr, out_ptr, split_tokens, num_splits,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (row and head, channel block): joins the parts of a row's context."""
    which = tl.program_id(0)
    count = tl.cdiv(tl.load(lengths_ptr + which // HEADS), split_tokens)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    out = _join(acc_ptr, peak_ptr, norm_ptr, which * num_splits, 1, count, channels,
                D, BLOCK, BLOCK_D)  # fmt: skip
    tl.store(out_ptr + which.to(tl.int64) * D + channels, out.to(out_ptr.dtype.element_ty))


@triton.jit
def _combine_blocks_kernel(
    acc_ptr, peak_ptr, norm_ptr, joins_ptr, out_ptr,
    HEADS: tl.constexpr, M: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (row of a block and head, block in several parts, channel block)."""
    which = tl.program_id(0)
    join = joins_ptr + tl.program_id(1) * 4
    if which // HEADS >= tl.load(join + 1):
        return
    first = tl.load(join + 2) * M * HEADS + which
    channels = tl.program_id(2) * BLOCK_D + tl.arange(0, BLOCK_D)
    out = _join(acc_ptr, peak_ptr, norm_ptr, first, M * HEADS, tl.load(join + 3), channels,
                D, BLOCK, BLOCK_D)  # fmt: skip
    cell = tl.load(join).to(tl.int64) * HEADS + which
    tl.store(out_ptr + cell * D + channels, out.to(out_ptr.dtype.element_ty))


def empty_parts(
    count: int, value_size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Room for `count` parts: acc `[count * Dv]`, peak `[count]` and norm `[count]`, float32."""
    parts = torch.empty(count * (value_size + 2), device=device)
    acc, peak, norm = parts.split([count * value_size, count, count])
    return acc, peak, norm


def combine(
    acc: torch.Tensor,
    peak: torch.Tensor,
    norm: torch.Tensor,
    out: torch.Tensor,
    num_splits: int,
    lengths: torch.Tensor,
    split_tokens: int,
) -> None:
    """Fill out `[R, H, Dv]` from parts `[R, H, num_splits]` (see `attend_tile` for what they hold).

    lengths int32 `[R]`: row r has only its first ceil(lengths[r] / split_tokens) parts.
    """
    num_rows, num_heads, value_size = out.shape
    block, block_d, num_warps = _tile(num_splits, value_size)
    _combine_kernel[(num_rows * num_heads, triton.cdiv(value_size, block_d))](
        acc, peak, norm, lengths, out, split_tokens, num_splits, HEADS=num_heads, D=value_size,
        BLOCK=block, BLOCK_D=block_d, num_warps=num_warps,
    )  # fmt: skip


def combine_blocks(
    acc: torch.Tensor, peak: torch.Tensor, norm: torch.Tensor, work: PrefillWork, out: torch.Tensor
) -> None:
    """Fill the rows of out `[T, H, Dv]` whose blocks are in parts `[parts, query rows, H]`."""
    num_heads, value_size = out.shape[1:]
    block, block_d, num_warps = _tile(work.most_parts, value_size)
    rows = work.query_rows
    grid = (rows * num_heads, len(work.joins), triton.cdiv(value_size, block_d))
    _combine_blocks_kernel[grid](
        acc, peak, norm, work.joins, out, HEADS=num_heads, M=rows, D=value_size,
        BLOCK=block, BLOCK_D=block_d, num_warps=num_warps,
    )  # fmt: skip


def _tile(num_parts: int, value_size: int) -> tuple[int, int, int]:
    """Parts at once, channels of a program, warps.

    About 4096 numbers a program: with many parts, channels are shared out among programs.
    """
    block = min(64, triton.next_power_of_2(num_parts))
    block_d = min(value_size, max(32, 4096 // block))
    return block, block_d, min(4, max(1, block * block_d // 512))
