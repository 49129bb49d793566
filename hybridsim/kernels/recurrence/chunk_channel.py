"""Chunk form, part one, decay per key channel (KDA).

exp(G_i - G_j) no longer leaves the product k_i k_j^T, and splitting it into exp(G_i) exp(-G_j)
overflows. Pairs are sorted by the smallest block of 2, 4, 8 ... tokens that holds both: i then lies
in its upper half and j in its lower, and with m the last token of the lower half both factors of
exp(G_i - G_m) exp(G_m - G_j) are at most 1. So every size of block is one safe matrix product.

Where decay within blocks of 16 tokens is mild enough for both factors to be floats, whichever side
of m they lie on, one product does for the four smallest sizes.
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

PAIRS_WARPS, PAIRS_CHANNELS = 4, 32
MILD_BLOCK = 16
# Largest |G_i - G_m| at which a key times its exponential keeps its digits in the type.
MILD_GAP = {torch.float16: 4.0, torch.bfloat16: 60.0, torch.float32: 60.0}


@triton.jit
def _pairs_kernel(
    q_ptr, k_ptr, decay_ptr, strength_ptr, chunks_ptr,
    total_ptr, queries_ptr, keys_ptr, scores_ptr, overlap_ptr, q_stride, k_stride, scale,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, C: tl.constexpr,
    BLOCK_K: tl.constexpr, MILD: tl.constexpr, MILD_GAP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (chunk, head): G, q exp(G), k exp(G_last - G), and q k^T and b k k^T, every pair
    with its own decay."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64)
    length = tl.load(chunks_ptr + chunk * 3 + 1)
    position = tl.arange(0, C)
    inside = (position < length)[:, None]
    # Only the bases are 64 bits wide: wide offsets would take the registers of the tiles.
    key_head = head // H_PER_KEY * K
    q_base = q_ptr + first * q_stride + key_head
    k_base = k_ptr + first * k_stride + key_head
    per_channel = (first * H + head) * K
    total_base = total_ptr + per_channel
    row = position[:, None]
    col = position[None, :]
    dtype = queries_ptr.dtype.element_ty
    scores = tl.zeros([C, C], dtype=tl.float32)
    overlap = tl.zeros([C, C], dtype=tl.float32)
    for channel in range(0, K, BLOCK_K):
        channels = channel + tl.arange(0, BLOCK_K)[None, :]
        tile = row * (H * K) + channels
        q = tl.load(q_base + row * q_stride + channels, mask=inside, other=0.0)
        k = tl.load(k_base + row * k_stride + channels, mask=inside, other=0.0)
        log_decay = tl.load(decay_ptr + per_channel + tile, mask=inside, other=0.0).to(tl.float32)
        total = tl.cumsum(log_decay, axis=0)
        last = tl.sum(log_decay, axis=0)
        tl.store(total_base + tile, total, mask=inside)
        queries = (q * tl.exp(total)).to(dtype)
        tl.store(queries_ptr + per_channel + tile, queries, mask=inside)
        # total and last are summed in different orders, so their difference may come out above 0.
        rest = tl.exp(tl.minimum(last[None, :] - total, 0.0))
        tl.store(keys_ptr + per_channel + tile, (k * rest).to(dtype), mask=inside)
        # Rows of G are read back below by other threads than wrote them.
        tl.debug_barrier()
        same = tl.sum(q.to(tl.float32) * k.to(tl.float32), axis=1)
        scores += tl.where(row == col, same[:, None], 0.0)
        size = 1
        middle = tl.minimum(position // MILD * MILD + MILD // 2 - 1, length - 1)[:, None]
        gap = tl.where(inside, total - tl.load(total_base + middle * (H * K) + channels), 0.0)
        if tl.max(tl.abs(gap)) < MILD_GAP:
            decay = tl.exp(gap)
            k_turned = tl.trans((k * tl.exp(-gap)).to(dtype))
            is_pair = ((row // MILD) == (col // MILD)) & (row > col)
            pairs = tl.dot((q * decay).to(dtype), k_turned, input_precision=PRECISION)
            scores += tl.where(is_pair, pairs, 0.0)
            pairs = tl.dot((k * decay).to(dtype), k_turned, input_precision=PRECISION)
            overlap += tl.where(is_pair, pairs, 0.0)
            size = MILD
        # Not unrolled: the registers of all sizes at once would spill.
        while size < C:
            # The last token of the lower half of each block of 2 * size.
            middle = (position // (2 * size) * (2 * size) + size - 1)[:, None]
            middle_rows = total_base + middle * (H * K) + channels
            at_middle = tl.load(middle_rows, mask=middle < length, other=0.0)
            decay = tl.exp(-tl.abs(total - at_middle))
            q_part = (q * decay).to(dtype)
            k_part = (k * decay).to(dtype)
            k_turned = tl.trans(k_part)
            in_block = (row // (2 * size)) == (col // (2 * size))
            is_pair = in_block & ((row & size) != 0) & ((col & size) == 0)
            pairs = tl.dot(q_part, k_turned, input_precision=PRECISION)
            scores += tl.where(is_pair, pairs, 0.0)
            pairs = tl.dot(k_part, k_turned, input_precision=PRECISION)
            overlap += tl.where(is_pair, pairs, 0.0)
            size *= 2
    per_head = (first + position)[:, None] * H + head
    strength = tl.load(strength_ptr + per_head, mask=inside, other=0.0).to(tl.float32)
    out = (scores * scale).to(scores_ptr.dtype.element_ty)
    tl.store(scores_ptr + per_head * C + col, out, mask=inside)
    tl.store(overlap_ptr + per_head * C + col, overlap * strength, mask=inside)


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
    _pairs_kernel[(plan.num_chunks, num_heads)](
        q, k, log_decay, strength, plan.chunks, total, queries, keys, scores, overlap,
        q.stride(0), k.stride(0), scale, **sizes, BLOCK_K=min(key_size, PAIRS_CHANNELS),
        MILD=MILD_BLOCK,
        MILD_GAP=MILD_GAP[v.dtype], PRECISION=precision, num_warps=PAIRS_WARPS,
    )  # fmt: skip
    _solve_kernel[(plan.num_chunks, num_heads)](
        k, v, total, strength, overlap, plan.chunks, reads, writes, k.stride(0), v.stride(0),
        **sizes, V=value_size, BLOCK_V=local_block(value_size),
        PRECISION=precision,
    )  # fmt: skip
    return LocalParts(queries, keys, total, scores, reads, writes, None)
