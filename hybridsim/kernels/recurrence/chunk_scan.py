"""Chunk form, part two: the state passes from chunk to chunk, and outputs fall out on the way."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import dot_precision, num_multiprocessors
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.parts import LocalParts


@triton.jit
def _scan_kernel(
    q_ptr, k_ptr, total_ptr, scores_ptr, reads_ptr, writes_ptr, strength_ptr,
    out_ptr, state_ptr, segments_ptr, sequences_ptr,
    q_stride, k_stride, writes_stride, slot_stride, scale,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    BLOCK_V: tl.constexpr, PER_CHANNEL: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Program (value block, head, sequence); see `LocalParts` for the inputs."""
    value_block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    segment = tl.load(sequences_ptr + sequence * 4)
    last_segment = segment + tl.load(sequences_ptr + sequence * 4 + 1)
    read_slot = tl.load(sequences_ptr + sequence * 4 + 2).to(tl.int64)
    channels = tl.arange(0, K)
    position = tl.arange(0, C)
    columns = value_block * BLOCK_V + tl.arange(0, BLOCK_V)
    in_value = (columns < V)[None, :]
    state_tile = head * K * V + channels[:, None] * V + columns[None, :]
    state = tl.zeros([K, BLOCK_V], dtype=tl.float32)
    if read_slot >= 0:
        read_tile = state_ptr + read_slot * slot_stride + state_tile
        state = tl.load(read_tile, mask=in_value, other=0.0).to(tl.float32)
    dtype = scores_ptr.dtype.element_ty
    key_offset = head // H_PER_KEY * K + channels
    while segment < last_segment:
        first = tl.load(segments_ptr + segment * 3).to(tl.int64)
        length = tl.load(segments_ptr + segment * 3 + 1)
        save_slot = tl.load(segments_ptr + segment * 3 + 2).to(tl.int64)
        for start in tl.range(0, length, C, num_stages=STAGES):
            in_chunk = (start + position) < length
            inside = in_chunk[:, None]
            token = first + start + position
            last = first + tl.minimum(start + C, length) - 1
            per_head = token * H + head
            q = tl.load(q_ptr + token[:, None] * q_stride + key_offset[None, :],
                        mask=inside, other=0.0)  # fmt: skip
            k = tl.load(k_ptr + token[None, :] * k_stride + key_offset[:, None],
                        mask=in_chunk[None, :], other=0.0)  # fmt: skip
            scores = tl.load(scores_ptr + per_head[:, None] * C + position[None, :],
                             mask=inside, other=0.0)  # fmt: skip
            written = tl.load(writes_ptr + token[:, None] * writes_stride + head * V
                              + columns[None, :], mask=inside & in_value, other=0.0)  # fmt: skip
            written = written.to(tl.float32)
            low = state.to(dtype)
            if reads_ptr is not None:
                reads = tl.load(reads_ptr + per_head[:, None] * K + channels[None, :],
                                mask=inside, other=0.0)  # fmt: skip
                written -= tl.dot(reads, low, input_precision=PRECISION)
            if strength_ptr is not None:
                strength = tl.load(strength_ptr + per_head, mask=in_chunk, other=0.0)
                written *= strength.to(tl.float32)[:, None]
            out = tl.dot(q, low, input_precision=PRECISION) * scale
            kept = written
            if total_ptr is not None:
                if PER_CHANNEL:
                    # The queries and keys carry their decay already.
                    state *= tl.exp(tl.load(total_ptr + (last * H + head) * K + channels))[:, None]
                else:
                    total = tl.load(total_ptr + per_head, mask=in_chunk, other=0.0)
                    total_last = tl.load(total_ptr + last * H + head)
                    out *= tl.exp(total)[:, None]
                    kept *= tl.exp(tl.where(in_chunk, total_last - total, 0.0))[:, None]
                    state *= tl.exp(total_last)
            out = tl.dot(scores, written.to(dtype), out, input_precision=PRECISION)
            state = tl.dot(k, kept.to(dtype), state, input_precision=PRECISION)
            tl.store(out_ptr + per_head[:, None] * V + columns[None, :],
                     out.to(out_ptr.dtype.element_ty), mask=inside & in_value)  # fmt: skip
        if save_slot >= 0:
            save_tile = state_ptr + save_slot * slot_stride + state_tile
            tl.store(save_tile, state.to(state_ptr.dtype.element_ty), mask=in_value)
        segment += 1


def chunk_scan(
    parts: LocalParts,
    states: torch.Tensor,
    plan: PackedPlan,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Fill out `[T, H, V]` and the saved slots of states `[slots, H, K, V]` from `parts`."""
    num_heads, value_size = out.shape[1:]
    key_size, chunk_size = parts.keys.shape[2], plan.chunk_size
    per_channel = parts.total is not None and parts.total.dim() == 3
    block_v, num_warps, num_stages = scan_tile(
        num_heads * plan.num_sequences, key_size * chunk_size, value_size, out.device
    )
    grid = (triton.cdiv(value_size, block_v), num_heads, plan.num_sequences)
    _scan_kernel[grid](
        parts.queries, parts.keys, parts.total, parts.scores, parts.reads, parts.writes,
        parts.strength, out, states, plan.segments, plan.sequences,
        parts.queries.stride(0), parts.keys.stride(0), parts.writes.stride(0), states.stride(0),
        scale, H=num_heads, H_PER_KEY=num_heads // parts.keys.shape[1], K=key_size, V=value_size,
        C=chunk_size, BLOCK_V=block_v, PER_CHANNEL=per_channel,
        PRECISION=dot_precision(out.dtype), STAGES=num_stages, num_warps=num_warps,
    )  # fmt: skip


def scan_tile(
    num_tiles: int, tile_size: int, value_size: int, device: torch.device
) -> tuple[int, int, int]:
    """State columns a program holds, its warps, its pipeline stages.

    `num_tiles` = sequences x heads, `tile_size` = K x C. Columns are narrow while multiprocessors
    would else be idle; stages are as many as shared memory takes.
    """
    if tile_size > 128 * 64:
        return min(32, max(16, triton.next_power_of_2(value_size))), 8, 1
    block_v = min(64, max(16, triton.next_power_of_2(value_size)))
    enough = num_multiprocessors(device)
    while block_v > 16 and num_tiles * triton.cdiv(value_size, block_v) < enough:
        block_v //= 2
    return block_v, 4, 3 if block_v <= 32 else 2
