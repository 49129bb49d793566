"""Chunk form, part one, decay per key channel (KDA).

exp(G_i - G_j) no longer leaves the product k_i k_j^T, and splitting it into exp(G_i) exp(-G_j)
overflows. Rows are taken in blocks of 16: against earlier blocks the split is made at the block's
own start, where both factors are at most 1; inside the block every pair is decayed by itself.
"""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import dot_precision
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.chunk_local import local_block
from hybridsim.kernels.recurrence.parts import LocalParts
from hybridsim.kernels.recurrence.triangular import invert_unit_lower


PAIRS_WARPS = 4


@triton.jit
def _scale_kernel(
    q_ptr, k_ptr, decay_ptr, chunks_ptr, total_ptr, queries_ptr, keys_ptr, q_stride, k_stride,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Program (chunk, head): G, q exp(G) and k exp(G_last - G)."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64)
    in_chunk = (tl.arange(0, C) < tl.load(chunks_ptr + chunk * 3 + 1))[:, None]
    token = first + tl.arange(0, C)
    channels = tl.arange(0, K)
    tile = (token * H + head)[:, None] * K + channels[None, :]
    log_decay = tl.load(decay_ptr + tile, mask=in_chunk, other=0.0).to(tl.float32)
    total = tl.cumsum(log_decay, axis=0)
    last = tl.sum(log_decay, axis=0)
    tl.store(total_ptr + tile, total, mask=in_chunk)
    key_tile = head // H_PER_KEY * K + channels[None, :]
    q = tl.load(q_ptr + token[:, None] * q_stride + key_tile, mask=in_chunk, other=0.0)
    k = tl.load(k_ptr + token[:, None] * k_stride + key_tile, mask=in_chunk, other=0.0)
    out_dtype = queries_ptr.dtype.element_ty
    tl.store(queries_ptr + tile, (q * tl.exp(total)).to(out_dtype), mask=in_chunk)
    # total and last are summed in different orders, so their difference may come out above 0.
    rest = tl.exp(tl.minimum(last[None, :] - total, 0.0))
    tl.store(keys_ptr + tile, (k * rest).to(out_dtype), mask=in_chunk)


@triton.jit
def _pairs_kernel(
    q_ptr, k_ptr, total_ptr, strength_ptr, chunks_ptr, scores_ptr, overlap_ptr,
    q_stride, k_stride, scale,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, C: tl.constexpr, B: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (row block, chunk, head): rows of q k^T and of b k k^T, decayed pair by pair."""
    block, chunk, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64)
    length = tl.load(chunks_ptr + chunk * 3 + 1)
    if block * B >= length:
        return
    channels = tl.arange(0, K)
    key_tile = head // H_PER_KEY * K + channels[None, :]
    row = block * B + tl.arange(0, B)
    in_row = (row < length)[:, None]
    row_token = (first + row)[:, None]
    q = tl.load(q_ptr + row_token * q_stride + key_tile, mask=in_row, other=0.0).to(tl.float32)
    k = tl.load(k_ptr + row_token * k_stride + key_tile, mask=in_row, other=0.0).to(tl.float32)
    row_total = tl.load(
        total_ptr + (row_token * H + head) * K + channels[None, :], mask=in_row, other=0.0
    )
    scores = tl.zeros([B, C], dtype=tl.float32)
    overlap = tl.zeros([B, C], dtype=tl.float32)
    col = tl.arange(0, C)
    if block > 0:
        before = (first + block * B - 1) * H + head
        start_total = tl.load(total_ptr + before * K + channels)[None, :]
        decayed = tl.exp(row_total - start_total)
        is_earlier = (col < block * B)[:, None]
        col_token = (first + col)[:, None]
        col_k = tl.load(k_ptr + col_token * k_stride + key_tile, mask=is_earlier, other=0.0)
        col_total = tl.load(
            total_ptr + (col_token * H + head) * K + channels[None, :], mask=is_earlier, other=0.0
        )
        # Positive only where masked: the decay summed up to an earlier token is the larger one.
        rest = tl.exp(tl.where(is_earlier, start_total - col_total, 0.0))
        col_k = tl.trans((col_k.to(tl.float32) * rest).to(k_ptr.dtype.element_ty))
        scores = tl.dot((q * decayed).to(col_k.dtype), col_k, input_precision=PRECISION)
        overlap = tl.dot((k * decayed).to(col_k.dtype), col_k, input_precision=PRECISION)
    for step in range(min(B, length - block * B)):
        one = first + block * B + step
        one_k = tl.load(k_ptr + one * k_stride + head // H_PER_KEY * K + channels).to(tl.float32)
        one_total = tl.load(total_ptr + (one * H + head) * K + channels)
        is_later = (row >= block * B + step)[:, None]
        pair = one_k[None, :] * tl.exp(tl.where(is_later, row_total - one_total[None, :], 0.0))
        pair = tl.where(is_later, pair, 0.0)
        here = (col == block * B + step)[None, :]
        scores = tl.where(here, tl.sum(q * pair, axis=1)[:, None], scores)
        overlap = tl.where(here, tl.sum(k * pair, axis=1)[:, None], overlap)
    strength = tl.load(strength_ptr + row_token * H + head, mask=in_row, other=0.0).to(tl.float32)
    overlap = tl.where(row[:, None] > col[None, :], overlap * strength, 0.0)
    tile = (row_token * H + head) * C + col[None, :]
    tl.store(scores_ptr + tile, (scores * scale).to(scores_ptr.dtype.element_ty), mask=in_row)
    tl.store(overlap_ptr + tile, overlap, mask=in_row)


@triton.jit
def _solve_kernel(
    k_ptr, v_ptr, total_ptr, strength_ptr, overlap_ptr, chunks_ptr, reads_ptr, writes_ptr,
    k_stride, v_stride,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (chunk, head): w and u from the triangular solve."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64)
    position = tl.arange(0, C)
    in_chunk = position < tl.load(chunks_ptr + chunk * 3 + 1)
    inside = in_chunk[:, None]
    token = first + position
    per_head = token * H + head
    channels = tl.arange(0, K)
    overlap_tile = overlap_ptr + per_head[:, None] * C + position[None, :]
    overlap = tl.load(overlap_tile, mask=inside & in_chunk[None, :], other=0.0)
    strength = tl.load(strength_ptr + per_head, mask=in_chunk, other=0.0).to(tl.float32)
    solve = invert_unit_lower(overlap, C, PRECISION) * strength[None, :]
    solve = solve.to(k_ptr.dtype.element_ty)
    tile = per_head[:, None] * K + channels[None, :]
    total = tl.load(total_ptr + tile, mask=inside, other=0.0)
    key_tile = token[:, None] * k_stride + head // H_PER_KEY * K + channels[None, :]
    k = tl.load(k_ptr + key_tile, mask=inside, other=0.0)
    reads = tl.dot(solve, (k * tl.exp(total)).to(solve.dtype), input_precision=PRECISION)
    tl.store(reads_ptr + tile, reads.to(reads_ptr.dtype.element_ty), mask=inside)
    for block in range(tl.cdiv(V, BLOCK_V)):
        columns = block * BLOCK_V + tl.arange(0, BLOCK_V)
        in_value = inside & (columns < V)[None, :]
        v_tile = v_ptr + token[:, None] * v_stride + head * V + columns[None, :]
        writes = tl.dot(solve, tl.load(v_tile, mask=in_value, other=0.0), input_precision=PRECISION)
        out_tile = writes_ptr + per_head[:, None] * V + columns[None, :]
        tl.store(out_tile, writes.to(writes_ptr.dtype.element_ty), mask=in_value)


def chunk_channel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    plan: PackedPlan,
    scale: float,
) -> LocalParts:
    """Run part one for the delta rule with decay per channel. Shapes as in `chunked.prefill`."""
    num_tokens, num_heads, value_size = v.shape
    key_size, chunk_size = k.shape[2], plan.chunk_size
    total = torch.empty(log_decay.shape, dtype=torch.float32, device=v.device)
    queries, keys, reads = (v.new_empty(log_decay.shape) for _ in range(3))
    scores = v.new_empty(num_tokens, num_heads, chunk_size)
    overlap = torch.empty(scores.shape, dtype=torch.float32, device=v.device)
    writes = v.new_empty(v.shape)
    sizes = {"H": num_heads, "H_PER_KEY": num_heads // k.shape[1], "K": key_size, "C": chunk_size}
    precision = dot_precision(k.dtype)
    _scale_kernel[(plan.num_chunks, num_heads)](
        q, k, log_decay, plan.chunks, total, queries, keys, q.stride(0), k.stride(0), **sizes
    )
    row_block = min(16, chunk_size)
    _pairs_kernel[(chunk_size // row_block, plan.num_chunks, num_heads)](
        q, k, total, strength, plan.chunks, scores, overlap, q.stride(0), k.stride(0), scale,
        **sizes, B=row_block, PRECISION=precision, num_warps=PAIRS_WARPS,
    )  # fmt: skip
    _solve_kernel[(plan.num_chunks, num_heads)](
        k, v, total, strength, overlap, plan.chunks, reads, writes, k.stride(0), v.stride(0),
        **sizes, V=value_size, BLOCK_V=local_block(value_size),
        PRECISION=precision,
    )  # fmt: skip
    return LocalParts(queries, keys, total, scores, reads, writes, None)
