"""Short causal convolution with SiLU; a slot keeps the last W - 1 inputs, oldest first."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import require
from hybridsim.kernels.plan import PackedPlan

PREFILL_TILE = (64, 64)  # tokens and channels of a program; measured on an H200


@triton.jit
def _prefill_kernel(
    x_ptr, weight_ptr, bias_ptr, state_ptr, chunks_ptr, sequences_ptr, out_ptr,
    x_stride, slot_stride,
    D: tl.constexpr, W: tl.constexpr, C: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (channel block, chunk, part): outputs only, so that nothing read is written.

    A part is `C` tokens of a chunk.
    """
    channels = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    in_width = channels < D if D % BLOCK_D != 0 else tl.full([BLOCK_D], True, dtype=tl.int1)
    chunk, part = tl.program_id(1), tl.program_id(2) * C
    length = tl.load(chunks_ptr + chunk * 3 + 1) - part
    if length <= 0:
        return
    start = tl.load(chunks_ptr + chunk * 3) + part
    sequence = tl.load(chunks_ptr + chunk * 3 + 2)
    read_slot = tl.load(sequences_ptr + sequence * 4 + 2).to(tl.int64)
    num_before = start - tl.load(sequences_ptr + sequence * 4 + 3)
    position = tl.arange(0, C)[:, None]
    inside = (position < length) & in_width[None, :]
    # Only the bases are 64 bits wide; offsets within a tile are cheap.
    x_base = x_ptr + start.to(tl.int64) * x_stride
    tile = position * x_stride + channels[None, :]
    total = tl.zeros([C, BLOCK_D], dtype=tl.float32)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + channels, mask=in_width, other=0.0).to(tl.float32)[None, :]
    for tap in tl.static_range(W):
        back = W - 1 - tap
        weight = tl.load(weight_ptr + channels * W + tap, mask=in_width, other=0.0).to(tl.float32)
        is_new = inside & (position + num_before >= back)
        x = tl.load(x_base + tile - back * x_stride, mask=is_new, other=0.0).to(tl.float32)
        if read_slot >= 0 and num_before < back:
            is_old = inside & (position + num_before < back)
            row = (position + num_before + tap) * D + channels[None, :]
            old = tl.load(state_ptr + read_slot * slot_stride + row, mask=is_old, other=0.0)
            x += old.to(tl.float32)
        total += x * weight[None, :]
    total *= tl.sigmoid(total)
    out_tile = out_ptr + start.to(tl.int64) * D + position * D + channels[None, :]
    tl.store(out_tile, total.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _save_kernel(
    x_ptr, state_ptr, segments_ptr, sequences_ptr, x_stride, slot_stride,
    D: tl.constexpr, W: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (channel block, sequence): the state at every segment's end that has a slot."""
    channels = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    in_width = channels < D
    sequence = tl.program_id(1)
    segment = tl.load(sequences_ptr + sequence * 4)
    last_segment = segment + tl.load(sequences_ptr + sequence * 4 + 1)
    read_slot = tl.load(sequences_ptr + sequence * 4 + 2).to(tl.int64)
    first = tl.load(sequences_ptr + sequence * 4 + 3)
    while segment < last_segment:
        end = tl.load(segments_ptr + segment * 3) + tl.load(segments_ptr + segment * 3 + 1)
        save_slot = tl.load(segments_ptr + segment * 3 + 2).to(tl.int64)
        if save_slot >= 0:
            # Rows rise, and row j comes from row j or a later one of the old state, so that saving
            # into the slot that was read is safe.
            for row in tl.static_range(W - 1):
                source = end - (W - 1) + row
                value = tl.zeros([BLOCK_D], dtype=x_ptr.dtype.element_ty)
                if source >= first:
                    x_row = x_ptr + source.to(tl.int64) * x_stride + channels
                    value = tl.load(x_row, mask=in_width)
                elif read_slot >= 0:
                    old_row = (source - first + (W - 1)) * D + channels
                    old = tl.load(state_ptr + read_slot * slot_stride + old_row, mask=in_width)
                    value = old.to(x_ptr.dtype.element_ty)
                save_row = state_ptr + save_slot * slot_stride + row * D + channels
                tl.store(save_row, value.to(state_ptr.dtype.element_ty), mask=in_width)
        segment += 1


@triton.jit
def _decode_kernel(
    x_ptr, weight_ptr, bias_ptr, state_ptr, slots_ptr, out_ptr, x_stride, slot_stride,
    D: tl.constexpr, W: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (channel block, request): one token, the state shifted by one in place."""
    channels = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)
    in_width = channels < D
    request = tl.program_id(1).to(tl.int64)
    state_row = state_ptr + tl.load(slots_ptr + request).to(tl.int64) * slot_stride + channels
    total = tl.zeros([BLOCK_D], dtype=tl.float32)
    if bias_ptr is not None:
        total += tl.load(bias_ptr + channels, mask=in_width, other=0.0).to(tl.float32)
    for row in tl.static_range(W - 1):
        old = tl.load(state_row + row * D, mask=in_width, other=0.0)
        weight = tl.load(weight_ptr + channels * W + row, mask=in_width, other=0.0)
        total += old.to(tl.float32) * weight.to(tl.float32)
        if row > 0:
            tl.store(state_row + (row - 1) * D, old, mask=in_width)
    x = tl.load(x_ptr + request * x_stride + channels, mask=in_width, other=0.0)
    weight = tl.load(weight_ptr + channels * W + (W - 1), mask=in_width, other=0.0)
    total += x.to(tl.float32) * weight.to(tl.float32)
    tl.store(state_row + (W - 2) * D, x.to(state_ptr.dtype.element_ty), mask=in_width)
    total *= tl.sigmoid(total)
    tl.store(out_ptr + request * D + channels, total.to(out_ptr.dtype.element_ty), mask=in_width)


def _check(x: torch.Tensor, weight: torch.Tensor, states: torch.Tensor) -> None:
    width = weight.shape[1]
    require(width >= 2, f"kernel width {width}; allowed: at least 2")
    shape = (width - 1, x.shape[1])
    require(states.shape[1:] == shape, f"states must be [slots, {shape[0]}, {shape[1]}]")
    require(weight.is_contiguous() and states[0].is_contiguous(), "weight and states contiguous")


def prefill(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    states: torch.Tensor,
    plan: PackedPlan,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs `[T, D]` of packed sequences; states named by `plan` are read and saved.

    x `[T, D]` (channels contiguous, token stride free), weight `[D, W]`, bias `[D]` or None,
    states `[slots, W - 1, D]`, changed in place.
    """
    _check(x, weight, states)
    num_channels, width = weight.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if plan.num_sequences == 0:
        return out
    if plan.num_chunks:
        tokens, width_block = min(PREFILL_TILE[0], plan.chunk_size), PREFILL_TILE[1]
        block = min(width_block, triton.next_power_of_2(num_channels))
        parts = triton.cdiv(plan.chunk_size, tokens)
        _prefill_kernel[(triton.cdiv(num_channels, block), plan.num_chunks, parts)](
            x, weight, bias, states, plan.chunks, plan.sequences, out, x.stride(0),
            states.stride(0), D=num_channels, W=width, C=tokens, BLOCK_D=block, num_warps=4,
        )  # fmt: skip
    block = min(1024, triton.next_power_of_2(num_channels))
    _save_kernel[(triton.cdiv(num_channels, block), plan.num_sequences)](
        x, states, plan.segments, plan.sequences, x.stride(0), states.stride(0),
        D=num_channels, W=width, BLOCK_D=block,
    )  # fmt: skip
    return out


def decode(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    states: torch.Tensor,
    slots: torch.Tensor,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """One token a request: x `[N, D]`, slots int32 `[N]`, distinct; outputs `[N, D]`."""
    _check(x, weight, states)
    num_channels, width = weight.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = min(1024, triton.next_power_of_2(num_channels))
    if x.shape[0]:
        _decode_kernel[(triton.cdiv(num_channels, block), x.shape[0])](
            x, weight, bias, states, slots, out, x.stride(0), states.stride(0),
            D=num_channels, W=width, BLOCK_D=block,
        )  # fmt: skip
    return out
