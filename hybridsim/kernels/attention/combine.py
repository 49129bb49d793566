"""Joining the parts of an attention whose keys were split among programs."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["split_tokens", "num_splits"])
def _combine_kernel(
    acc_ptr, peak_ptr, norm_ptr, lengths_ptr, out_ptr, split_tokens, num_splits,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (row and head, channel block): the weighted mean of the parts of its context."""
    which = tl.program_id(0)
    count = num_splits
    if lengths_ptr is not None:
        count = tl.cdiv(tl.load(lengths_ptr + which // HEADS), split_tokens)
    channels = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    norm = 0.0
    peak = float("-inf")
    for at in range(0, count, BLOCK):
        split = at + tl.arange(0, BLOCK)
        part = which * num_splits + split
        exists = split < count
        peaks = tl.load(peak_ptr + part, mask=exists, other=float("-inf"))
        norms = tl.load(norm_ptr + part, mask=exists, other=0.0)
        parts_ptr = acc_ptr + part.to(tl.int64)[:, None] * D + channels[None, :]
        parts = tl.load(parts_ptr, mask=exists[:, None], other=0.0)
        # Of parts that saw no key only the peak of -inf was written. All three loads start at once.
        is_written = peaks > float("-inf")
        norms = tl.where(is_written, norms, 0.0)
        parts = tl.where(is_written[:, None], parts, 0.0)
        new_peak = tl.maximum(peak, tl.max(peaks, axis=0))
        # inf - inf must not arise.
        base = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink = tl.exp2(peak - base)
        weights = tl.exp2(peaks - base)
        total = total * shrink + tl.sum(parts * weights[:, None], axis=0)
        norm = norm * shrink + tl.sum(norms * weights, axis=0)
        peak = new_peak
    out = total / norm
    tl.store(out_ptr + which.to(tl.int64) * D + channels, out.to(out_ptr.dtype.element_ty))


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
    lengths: torch.Tensor | None = None,
    split_tokens: int = 1,
) -> None:
    """Fill out `[R, H, Dv]` from parts `[R, H, num_splits]` (see `attend_tile` for what they hold).

    lengths int32 `[R]`: row r has only its first ceil(lengths[r] / split_tokens) parts; None: all.
    """
    num_rows, num_heads, value_size = out.shape
    block = min(64, triton.next_power_of_2(num_splits))
    # About 4096 numbers a program: with many parts, channels are shared out among programs.
    block_d = min(value_size, max(32, 4096 // block))
    num_warps = min(4, max(1, block * block_d // 512))
    _combine_kernel[(num_rows * num_heads, triton.cdiv(value_size, block_d))](
        acc, peak, norm, lengths, out, split_tokens, num_splits, HEADS=num_heads, D=value_size,
        BLOCK=block, BLOCK_D=block_d, num_warps=num_warps,
    )  # fmt: skip
