"""Blocked form, parts two and three: states from chunk to chunk, then all outputs at once."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import dot_precision
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.blocked_local import BLOCK, BlockedParts
from hybridsim.kernels.recurrence.chunk_local import local_block
from hybridsim.kernels.recurrence.chunk_scan import scan_tile

OUTPUT_WARPS, OUTPUT_STAGES = 4, 2
# Bytes of a key up to which steps of 128 tokens leave shared memory for two more loaded ahead.
LONG_STEP_BYTES = 256


@triton.jit
def _first_chunk(chunks_ptr, num_chunks, sequence):
    """How many rows of the chunk table belong to sequences before this one."""
    count = 0
    for at in range(0, num_chunks, 1024):
        index = at + tl.arange(0, 1024)
        owner = tl.load(chunks_ptr + index * 3 + 2, mask=index < num_chunks, other=sequence)
        count += tl.sum((owner < sequence).to(tl.int32))
    return count


@triton.jit
def _scan_kernel(
    k_ptr, total_ptr, rest_ptr, reads_ptr, writes_ptr,
    history_ptr, state_ptr, segments_ptr, sequences_ptr, chunks_ptr,
    k_stride, slot_stride, num_chunks,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    B: tl.constexpr, ROWS: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Program (value block, head, sequence), ROWS tokens a step: the state at every chunk's start
    into the history, u replaced by what is written, u - w S."""
    value_block, head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    segment = tl.load(sequences_ptr + sequence * 4)
    last_segment = segment + tl.load(sequences_ptr + sequence * 4 + 1)
    read_slot = tl.load(sequences_ptr + sequence * 4 + 2).to(tl.int64)
    chunk = _first_chunk(chunks_ptr, num_chunks, sequence).to(tl.int64)
    channels = tl.arange(0, K)
    position = tl.arange(0, ROWS)
    columns = value_block * BLOCK_V + tl.arange(0, BLOCK_V)
    in_value = (columns < V)[None, :]
    state_tile = head * K * V + channels[:, None] * V + columns[None, :]
    state = tl.zeros([K, BLOCK_V], dtype=tl.float32)
    if read_slot >= 0:
        read_tile = state_ptr + read_slot * slot_stride + state_tile
        state = tl.load(read_tile, mask=in_value, other=0.0).to(tl.float32)
    dtype = writes_ptr.dtype.element_ty
    low = state.to(dtype)
    key_offset = head // H_PER_KEY * K + channels
    while segment < last_segment:
        first = tl.load(segments_ptr + segment * 3).to(tl.int64)
        length = tl.load(segments_ptr + segment * 3 + 1)
        save_slot = tl.load(segments_ptr + segment * 3 + 2).to(tl.int64)
        # One flat loop, so that tokens are loaded ahead across the ends of chunks too.
        for start in tl.range(0, length, ROWS, num_stages=STAGES):
            starts_chunk = start % C == 0
            low = tl.where(starts_chunk, state.to(dtype), low)
            past = history_ptr + (chunk + start // C) * (H * K * V) + state_tile
            tl.store(past, low, mask=in_value & starts_chunk)
            in_rows = (start + position) < length
            inside = in_rows[:, None]
            token = first + start + position
            per_head = token * H + head
            reads = tl.load(reads_ptr + per_head[:, None] * K + channels[None, :],
                            mask=inside, other=0.0)  # fmt: skip
            k = tl.load(k_ptr + token[None, :] * k_stride + key_offset[:, None],
                        mask=in_rows[None, :], other=0.0)  # fmt: skip
            writes_tile = writes_ptr + per_head[:, None] * V + columns[None, :]
            written = tl.load(writes_tile, mask=inside & in_value, other=0.0).to(tl.float32)
            written -= tl.dot(reads, low, input_precision=PRECISION)
            tl.store(writes_tile, written.to(dtype), mask=inside & in_value)
            rest = tl.load(rest_ptr + per_head, mask=in_rows, other=0.0)
            whole = 0.0
            for block in tl.static_range(ROWS // B):
                last = tl.minimum(start + (block + 1) * B, length) - 1
                total = tl.load(total_ptr + (first + last) * H + head,
                                mask=start + block * B < length, other=0.0)  # fmt: skip
                rest += tl.where(position < block * B, total, 0.0)
                whole += total
            state *= tl.exp(whole)
            kept = (written * tl.exp(rest)[:, None]).to(dtype)
            state = tl.dot(k, kept, state, input_precision=PRECISION)
        if save_slot >= 0:
            save_tile = state_ptr + save_slot * slot_stride + state_tile
            tl.store(save_tile, state.to(state_ptr.dtype.element_ty), mask=in_value)
        chunk += tl.cdiv(length, C)
        segment += 1


@triton.jit
def _outputs_kernel(
    q_ptr, k_ptr, total_ptr, rest_ptr, written_ptr, history_ptr, chunks_ptr, out_ptr,
    q_stride, k_stride, scale,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    B: tl.constexpr, NUM_BLOCKS: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Program (block, head, value block): q over the chunk's first state and over what the chunk's
    tokens have written since."""
    block, head, value_block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    chunk, index = (block // NUM_BLOCKS).to(tl.int64), block % NUM_BLOCKS
    length = tl.load(chunks_ptr + chunk * 3 + 1) - index * B
    if length <= 0:
        return
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64) + index * B
    position = tl.arange(0, B)
    channels = tl.arange(0, K)
    columns = value_block * BLOCK_V + tl.arange(0, BLOCK_V)
    in_block = position < length
    inside = in_block[:, None]
    in_value = (columns < V)[None, :]
    key_offset = head // H_PER_KEY * K + channels
    token = first + position
    q = tl.load(q_ptr + token[:, None] * q_stride + key_offset[None, :], mask=inside, other=0.0)
    dtype = written_ptr.dtype.element_ty
    out = tl.zeros([B, BLOCK_V], dtype=tl.float32)
    between = 0.0
    # Earlier blocks of the chunk, which are whole, the nearest first.
    for back in tl.range(1, index + 1, num_stages=STAGES):
        end = first - (back - 1) * B
        earlier = end - B + position
        k = tl.load(k_ptr + earlier[None, :] * k_stride + key_offset[:, None])
        rest = tl.load(rest_ptr + earlier * H + head)
        scores = tl.dot(q, k, input_precision=PRECISION) * tl.exp(between + rest)[None, :]
        written = tl.load(written_ptr + (earlier * H + head)[:, None] * V + columns[None, :],
                          mask=in_value, other=0.0)  # fmt: skip
        out = tl.dot(scores.to(dtype), written, out, input_precision=PRECISION)
        between += tl.load(total_ptr + (end - 1) * H + head)
    past = tl.load(history_ptr + ((chunk * H + head) * K + channels[:, None]) * V
                   + columns[None, :], mask=in_value, other=0.0)  # fmt: skip
    out += tl.dot(q, past, input_precision=PRECISION) * tl.exp(between)
    per_head = token * H + head
    total = tl.load(total_ptr + per_head, mask=in_block, other=0.0)
    out *= tl.exp(total)[:, None]
    k = tl.load(k_ptr + token[None, :] * k_stride + key_offset[:, None],
                mask=in_block[None, :], other=0.0)  # fmt: skip
    is_past = inside & (position[:, None] >= position[None, :])
    gap = tl.exp(tl.where(is_past, total[:, None] - total[None, :], 0.0))
    scores = tl.where(is_past, tl.dot(q, k, input_precision=PRECISION) * gap, 0.0)
    value_tile = per_head[:, None] * V + columns[None, :]
    written = tl.load(written_ptr + value_tile, mask=inside & in_value, other=0.0)
    out = tl.dot(scores.to(dtype), written, out, input_precision=PRECISION) * scale
    tl.store(out_ptr + value_tile, out.to(out_ptr.dtype.element_ty), mask=inside & in_value)


def blocked_scan(
    k: torch.Tensor, parts: BlockedParts, states: torch.Tensor, plan: PackedPlan
) -> torch.Tensor:
    """Run part two: fills the saved slots of states `[slots, H, K, V]`, turns `parts.writes` into
    what is written, and returns the state at each chunk's start `[num_chunks, H, K, V]`."""
    num_heads, value_size = parts.writes.shape[1:]
    key_size = k.shape[2]
    history = parts.writes.new_empty(plan.num_chunks, num_heads, key_size, value_size)
    rows, block_v, num_warps, num_stages = _step(k, plan, num_heads, value_size)
    grid = (triton.cdiv(value_size, block_v), num_heads, plan.num_sequences)
    _scan_kernel[grid](
        k, parts.total, parts.rest, parts.reads, parts.writes, history, states,
        plan.segments, plan.sequences, plan.chunks, k.stride(0), states.stride(0),
        plan.num_chunks, H=num_heads, H_PER_KEY=num_heads // k.shape[1], K=key_size, V=value_size,
        C=plan.chunk_size, B=BLOCK, ROWS=rows, BLOCK_V=block_v,
        PRECISION=dot_precision(k.dtype), STAGES=num_stages, num_warps=num_warps,
    )  # fmt: skip
    return history


def _step(
    k: torch.Tensor, plan: PackedPlan, num_heads: int, value_size: int
) -> tuple[int, int, int, int]:
    """Of part two: tokens a step, state columns a program holds, its warps, its stages."""
    key_size = k.shape[2]
    block_v, num_warps, num_stages = scan_tile(
        num_heads * plan.num_sequences, key_size * BLOCK, value_size, k.device
    )
    if plan.chunk_size > BLOCK and key_size * k.element_size() <= LONG_STEP_BYTES:
        return 2 * BLOCK, block_v, 8, 3 if block_v <= 16 else 2
    # With one stage, Triton 3.6 was seen to read outside its memory in such a loop.
    return BLOCK, block_v, num_warps, max(2, num_stages)


def blocked_outputs(
    q: torch.Tensor,
    k: torch.Tensor,
    parts: BlockedParts,
    history: torch.Tensor,
    plan: PackedPlan,
    scale: float,
    out: torch.Tensor,
) -> None:
    """Run part three: fill out `[T, H, V]`."""
    num_heads, value_size = out.shape[1:]
    num_blocks = plan.chunk_size // BLOCK
    block_v = local_block(value_size)
    grid = (plan.num_chunks * num_blocks, num_heads, triton.cdiv(value_size, block_v))
    _outputs_kernel[grid](
        q, k, parts.total, parts.rest, parts.writes, history, plan.chunks, out,
        q.stride(0), k.stride(0), scale, H=num_heads, H_PER_KEY=num_heads // k.shape[1],
        K=k.shape[2], V=value_size, B=BLOCK, NUM_BLOCKS=num_blocks, BLOCK_V=block_v,
        PRECISION=dot_precision(k.dtype), STAGES=OUTPUT_STAGES, num_warps=OUTPUT_WARPS,
    )  # fmt: skip
