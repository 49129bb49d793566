"""Blocked form, part one: each block's w and u by itself, then joined to those of whole chunks."""
# mypy: disallow-untyped-defs=False

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import dot_precision
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.chunk_local import local_block
from hybridsim.kernels.recurrence.triangular import invert_unit_lower

BLOCK = 64
SOLVE_WARPS, JOIN_WARPS = 4, 4


@dataclass(frozen=True, slots=True, eq=False)
class BlockedParts:
    """Per-token tensors of one layer. Decay is summed inside blocks only: sums over a whole chunk
    would lose the digits of mild decay after strong.

    total `[T, H]` float32: log decay from the block's start to the token, both included.
    rest `[T, H]` float32: log decay from after the token to the block's end.
    reads `[T, H, K]`: w, what a token subtracts is w S, S the state at the chunk's start.
    writes `[T, H, V]`: u; what a token writes is u - w S.
    """

    total: torch.Tensor
    rest: torch.Tensor
    reads: torch.Tensor
    writes: torch.Tensor


@triton.jit
def _solve_kernel(
    k_ptr, v_ptr, decay_ptr, strength_ptr, chunks_ptr,
    total_ptr, rest_ptr, reads_ptr, writes_ptr, k_stride, v_stride,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    B: tl.constexpr, NUM_BLOCKS: tl.constexpr, BLOCK_V: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (block, head): summed decay, and w and u as if the block were a chunk."""
    block, head = tl.program_id(0), tl.program_id(1)
    chunk, skipped = block // NUM_BLOCKS, block % NUM_BLOCKS * B
    length = tl.load(chunks_ptr + chunk * 3 + 1) - skipped
    if length <= 0:
        return
    position = tl.arange(0, B)
    channels = tl.arange(0, K)
    in_block = position < length
    token = tl.load(chunks_ptr + chunk * 3).to(tl.int64) + skipped + position
    per_head = token * H + head
    row, col = position[:, None], position[None, :]
    log_decay = tl.load(decay_ptr + per_head, mask=in_block, other=0.0).to(tl.float32)
    total = tl.cumsum(log_decay, axis=0)
    tl.store(total_ptr + per_head, total, mask=in_block)
    # A sum of its own: the difference to the block's whole would lose digits.
    rest = tl.sum(tl.where(col > row, log_decay[None, :], 0.0), axis=1)
    tl.store(rest_ptr + per_head, rest, mask=in_block)
    key_tile = token[:, None] * k_stride + head // H_PER_KEY * K + channels[None, :]
    k = tl.load(k_ptr + key_tile, mask=in_block[:, None], other=0.0)
    strength = tl.load(strength_ptr + per_head, mask=in_block, other=0.0).to(tl.float32)
    # Masked before the exponential: above the diagonal it could overflow.
    gap = tl.exp(tl.where(row >= col, total[:, None] - total[None, :], 0.0))
    overlap = tl.dot(k, tl.trans(k), input_precision=PRECISION) * strength[:, None] * gap
    solve = invert_unit_lower(tl.where(row > col, overlap, 0.0), B, PRECISION)
    solve = (solve * strength[None, :]).to(k.dtype)
    for value_block in range(tl.cdiv(V, BLOCK_V)):
        columns = value_block * BLOCK_V + tl.arange(0, BLOCK_V)
        inside = in_block[:, None] & (columns < V)[None, :]
        value_tile = token[:, None] * v_stride + head * V + columns[None, :]
        v = tl.load(v_ptr + value_tile, mask=inside, other=0.0)
        writes = tl.dot(solve, v, input_precision=PRECISION)
        writes_tile = writes_ptr + per_head[:, None] * V + columns[None, :]
        tl.store(writes_tile, writes.to(writes_ptr.dtype.element_ty), mask=inside)
    k = (k.to(tl.float32) * tl.exp(total)[:, None]).to(k.dtype)
    reads = tl.dot(solve, k, input_precision=PRECISION)
    reads_tile = reads_ptr + per_head[:, None] * K + channels[None, :]
    tl.store(reads_tile, reads.to(reads_ptr.dtype.element_ty), mask=in_block[:, None])


@triton.jit
def _join_kernel(
    k_ptr, total_ptr, rest_ptr, chunks_ptr, reads_ptr, writes_ptr, k_stride,
    H: tl.constexpr, H_PER_KEY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    B: tl.constexpr, NUM_BLOCKS: tl.constexpr, HALF: tl.constexpr, BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Program (block of an upper half, head): w and u, in place, from the lower half's start on.

    HALF: blocks in half of a piece, 1 or 2; the halves of a piece are joined within themselves. A
    lower half starts at state S and turns it into d S + Y^T (u_lower - w_lower S), d its whole
    decay and Y its keys decayed to its end. Put into u - w (...) for the upper half, with M = w
    Y^T, this leaves u - M u_lower and d w - M w_lower. Lower halves are only read.
    """
    upper, head = tl.program_id(0), tl.program_id(1)
    uppers: tl.constexpr = NUM_BLOCKS // 2
    chunk, index = upper // uppers, upper % uppers
    lower_start = index // HALF * (2 * HALF * B)
    start = lower_start + (HALF + index % HALF) * B
    length = tl.load(chunks_ptr + chunk * 3 + 1) - start
    if length <= 0:
        return
    first = tl.load(chunks_ptr + chunk * 3).to(tl.int64)
    position = tl.arange(0, B)
    inside = (position < length)[:, None]
    channels = tl.arange(0, K)[None, :]
    per_head = (first + start + position)[:, None] * H + head
    # Whole, since a token of the upper half exists.
    lower_position = tl.arange(0, HALF * B)
    lower = first + lower_start + lower_position
    lower_per_head = lower * H + head
    rest = tl.load(rest_ptr + lower_per_head)
    whole = 0.0
    for block in tl.static_range(HALF):
        total = tl.load(total_ptr + (first + lower_start + (block + 1) * B - 1) * H + head)
        rest += tl.where(lower_position < block * B, total, 0.0)
        whole += total
    key_tile = lower[:, None] * k_stride + head // H_PER_KEY * K + channels
    k = tl.load(k_ptr + key_tile)
    k = (k.to(tl.float32) * tl.exp(rest)[:, None]).to(k.dtype)
    reads_tile = reads_ptr + per_head * K + channels
    reads = tl.load(reads_tile, mask=inside, other=0.0)
    moved = tl.dot(reads, tl.trans(k), input_precision=PRECISION).to(k.dtype)
    lower_reads = tl.load(reads_ptr + lower_per_head[:, None] * K + channels)
    joined = reads.to(tl.float32) * tl.exp(whole)
    joined -= tl.dot(moved, lower_reads, input_precision=PRECISION)
    tl.store(reads_tile, joined.to(reads.dtype), mask=inside)
    for value_block in range(tl.cdiv(V, BLOCK_V)):
        columns = value_block * BLOCK_V + tl.arange(0, BLOCK_V)[None, :]
        lower_tile = writes_ptr + lower_per_head[:, None] * V + columns
        lower_writes = tl.load(lower_tile, mask=columns < V, other=0.0)
        writes_tile = writes_ptr + per_head * V + columns
        writes = tl.load(writes_tile, mask=inside & (columns < V), other=0.0).to(tl.float32)
        writes -= tl.dot(moved, lower_writes, input_precision=PRECISION)
        tl.store(writes_tile, writes.to(lower_writes.dtype), mask=inside & (columns < V))


def blocked_local(
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor,
    strength: torch.Tensor,
    plan: PackedPlan,
) -> BlockedParts:
    """Run part one; shapes as in `blocked.prefill_blocked`."""
    num_tokens, num_heads, value_size = v.shape
    key_size, num_blocks = k.shape[2], plan.chunk_size // BLOCK
    total, rest = (torch.empty_like(log_decay, dtype=torch.float32) for _ in range(2))
    reads = v.new_empty(num_tokens, num_heads, key_size)
    writes = v.new_empty(v.shape)
    sizes = {
        "H": num_heads, "H_PER_KEY": num_heads // k.shape[1], "K": key_size, "V": value_size,
        "B": BLOCK, "NUM_BLOCKS": num_blocks, "BLOCK_V": local_block(value_size),
        "PRECISION": dot_precision(k.dtype),
    }  # fmt: skip
    _solve_kernel[(plan.num_chunks * num_blocks, num_heads)](
        k, v, log_decay, strength, plan.chunks, total, rest, reads, writes,
        k.stride(0), v.stride(0), **sizes, num_warps=SOLVE_WARPS,
    )  # fmt: skip
    half = 1
    while half < num_blocks:
        _join_kernel[(plan.num_chunks * num_blocks // 2, num_heads)](
            k, total, rest, plan.chunks, reads, writes, k.stride(0), **sizes, HALF=half,
            num_warps=JOIN_WARPS,
        )  # fmt: skip
        half *= 2
    return BlockedParts(total, rest, reads, writes)
