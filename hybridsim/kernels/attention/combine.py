"""Joining the parts of an attention whose keys were split among programs."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["split_tokens", "num_splits"])
def _combine_kernel(
    acc_ptr, peak_ptr, norm_ptr, lengths_ptr, out_ptr, split_tokens, num_splits,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row and head): the weighted mean of the parts that its context has."""
    which = tl.program_id(0)
    count = num_splits
    if lengths_ptr is not None:
        count = tl.cdiv(tl.load(lengths_ptr + which // HEADS), split_tokens)
    channels = tl.arange(0, D)
    total = tl.zeros([D], dtype=tl.float32)
    norm = 0.0
    peak = float("-inf")
    for at in range(0, count, BLOCK):
        split = at + tl.arange(0, BLOCK)
        part = which * num_splits + split
        peaks = tl.load(peak_ptr + part, mask=split < count, other=float("-inf"))
        parts_ptr = acc_ptr + part.to(tl.int64)[:, None] * D + channels[None, :]
        # Parts that saw no key were not written, but for their peak of -inf.
        is_written = peaks > float("-inf")
        norms = tl.load(norm_ptr + part, mask=is_written, other=0.0)
        parts = tl.load(parts_ptr, mask=is_written[:, None], other=0.0)
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
    _combine_kernel[(num_rows * num_heads,)](
        acc, peak, norm, lengths, out, split_tokens, num_splits, HEADS=num_heads, D=value_size,
        BLOCK=min(16, triton.next_power_of_2(num_splits)),
    )  # fmt: skip
