"""Chunk form, part one, decay per head or none: all that stays inside one chunk."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import dot_precision
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.parts import LocalParts
from hybridsim.kernels.recurrence.rules import Rule
from hybridsim.kernels.recurrence.triangular import invert_unit_lower

NUM_WARPS = 4  # of a chunk of up to 64 tokens


@triton.jit
def _local_kernel(
    q_ptr, k_ptr, v_ptr, decay_ptr, strength_ptr, chunks_ptr,
    total_ptr, scores_ptr, reads_ptr, writes_ptr, q_stride, k_stride, v_stride, scale,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    BLOCK_V: tl.constexpr, IS_DELTA: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (chunk, head): summed decay, masked scores q k^T and, for the delta rule, w and u."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64)
    length = tl.load(chunks_ptr + chunk * 3 + 1)
    position = tl.arange(0, C)
    channels = tl.arange(0, K)
    in_chunk = position < length
    token = first + position
    row = position[:, None]
    col = position[None, :]
    per_head = token * H + head
    key_tile = head // H_PER_KEY * K + channels[None, :]
    k = tl.load(k_ptr + token[:, None] * k_stride + key_tile, mask=in_chunk[:, None], other=0.0)
    q = tl.load(q_ptr + token[:, None] * q_stride + key_tile, mask=in_chunk[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(row >= col, scores, 0.0)
    if decay_ptr is not None:
        log_decay = tl.load(decay_ptr + per_head, mask=in_chunk, other=0.0).to(tl.float32)
        total = tl.cumsum(log_decay, axis=0)
        tl.store(total_ptr + per_head, total, mask=in_chunk)
        # Masked before the exponential: above the diagonal it could overflow.
        gap = tl.exp(tl.where(row >= col, total[:, None] - total[None, :], 0.0))
        scores *= gap
    scores_tile = scores_ptr + per_head[:, None] * C + col
    tl.store(scores_tile, scores.to(scores_ptr.dtype.element_ty), mask=in_chunk[:, None])
    if IS_DELTA:
        strength = tl.load(strength_ptr + per_head, mask=in_chunk, other=0.0).to(tl.float32)
        overlap = tl.dot(k, tl.trans(k), input_precision=PRECISION) * strength[:, None]
        if decay_ptr is not None:
            overlap *= gap
        solve = invert_unit_lower(tl.where(row > col, overlap, 0.0), C, PRECISION)
        solve = (solve * strength[None, :]).to(k.dtype)
        for block in range(tl.cdiv(V, BLOCK_V)):
            columns = block * BLOCK_V + tl.arange(0, BLOCK_V)
            inside = in_chunk[:, None] & (columns < V)[None, :]
            value_tile = token[:, None] * v_stride + head * V + columns[None, :]
            v = tl.load(v_ptr + value_tile, mask=inside, other=0.0)
            writes = tl.dot(solve, v, input_precision=PRECISION)
            writes_tile = writes_ptr + per_head[:, None] * V + columns[None, :]
            tl.store(writes_tile, writes.to(writes_ptr.dtype.element_ty), mask=inside)
        if decay_ptr is not None:
            k = (k.to(tl.float32) * tl.exp(total)[:, None]).to(k.dtype)
        reads = tl.dot(solve, k, input_precision=PRECISION)
        reads_tile = reads_ptr + per_head[:, None] * K + channels[None, :]
        tl.store(reads_tile, reads.to(reads_ptr.dtype.element_ty), mask=in_chunk[:, None])


def local_block(value_size: int) -> int:
    """Value columns a tile of part one: at least 32, for Triton 3.6 gets 64 x 64 x 16 products of
    bfloat16 with the left factor in registers wrong on Hopper (seen on an H200)."""
    return min(128, max(32, triton.next_power_of_2(value_size)))


def chunk_local(
    rule: Rule,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    plan: PackedPlan,
    scale: float,
) -> LocalParts:
    """Run part one for a rule whose decay is per head or none. Shapes as in `chunked.prefill`."""
    num_tokens, num_heads, value_size = v.shape
    key_size, chunk_size = k.shape[2], plan.chunk_size
    scores = v.new_empty(num_tokens, num_heads, chunk_size)
    total = None
    if log_decay is not None:
        total = torch.empty(num_tokens, num_heads, dtype=torch.float32, device=v.device)
    reads = v.new_empty(num_tokens, num_heads, key_size) if rule.is_delta else None
    writes = v.new_empty(num_tokens, num_heads, value_size) if rule.is_delta else v
    _local_kernel[(plan.num_chunks, num_heads)](
        q, k, v, log_decay, strength, plan.chunks, total, scores, reads, writes,
        q.stride(0), k.stride(0), v.stride(0), scale,
        H=num_heads, H_PER_KEY=num_heads // k.shape[1], K=key_size, V=value_size, C=chunk_size,
        BLOCK_V=local_block(value_size), IS_DELTA=rule.is_delta,
        PRECISION=dot_precision(k.dtype), num_warps=NUM_WARPS if chunk_size <= 64 else 8,
    )  # fmt: skip
    return LocalParts(q, k, total, scores, reads, writes, None if rule.is_delta else strength)
