"""Decode attention: one query token a request over paged keys and values, the context split."""
# mypy: disallow-untyped-defs=False

import math

import torch
import triton
import triton.language as tl

from hybridsim.kernels.attention.combine import combine, empty_parts
from hybridsim.kernels.attention.pages import PagedKV
from hybridsim.kernels.attention.tile import attend_tile
from hybridsim.kernels.launch import num_multiprocessors


# Widths of tables differ from step to step; a version for each divisor would be compiled.
@triton.jit(do_not_specialize=["table_stride", "split_tokens", "num_splits"])
def _split_kernel(
    q_ptr, key_pages_ptr, value_pages_ptr, table_ptr, lengths_ptr, acc_ptr, peak_ptr, norm_ptr,
    q_stride, table_stride, split_tokens, num_splits, log2_scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    PAGE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Program (split, KV head, request): a KV head's query heads over a part of the context."""
    split, kv_head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group: tl.constexpr = HEADS // KV_HEADS
    begin = split * split_tokens
    end = tl.minimum(begin + split_tokens, tl.load(lengths_ptr + request))
    if begin >= end:
        return
    row = tl.arange(0, M)
    col = tl.arange(0, N)
    channels = tl.arange(0, D)
    in_group = (row < group)[:, None]
    q_rows = request.to(tl.int64) * q_stride + (kv_head * group + row)[:, None] * (D + R)
    q = tl.load(q_ptr + q_rows + channels[None, :], mask=in_group, other=0.0)
    q_rotary = q
    if R > 0:
        rotary = D + tl.arange(0, R)
        q_rotary = tl.load(q_ptr + q_rows + rotary[None, :], mask=in_group, other=0.0)
    acc = tl.zeros([M, D], dtype=tl.float32)
    peak = tl.full([M], float("-inf"), dtype=tl.float32)
    norm = tl.zeros([M], dtype=tl.float32)
    for at in range(begin, end, N):
        position = at + col
        in_tile = position < end
        page = tl.load(table_ptr + request * table_stride + position // PAGE, mask=in_tile, other=0)
        cell = (page.to(tl.int64) * PAGE + position % PAGE) * KV_HEADS + kv_head
        acc, peak, norm = attend_tile(
            acc, peak, norm, q, q_rotary, key_pages_ptr + cell * (D + R),
            value_pages_ptr + cell * D, in_tile[None, :], in_tile, log2_scale,
            D, R, SHARED, True,
        )  # fmt: skip
    part = (request * HEADS + kv_head * group + row) * num_splits + split
    tl.store(acc_ptr + part[:, None] * D + channels[None, :], acc, mask=in_group)
    tl.store(peak_ptr + part, peak, mask=row < group)
    tl.store(norm_ptr + part, norm, mask=row < group)


def decode(
    q: torch.Tensor,
    cache: PagedKV,
    page_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    split_tokens: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs `[N, H, Dv]` of one query token a request.

    q `[N, H, D]` (heads and channels contiguous); page_table int32 `[N, max_pages]`; lengths int32
    `[N]`, at least 1: tokens in the pages, the query's own included. split_tokens: context tokens
    of one program; None lets `split_of` choose from the table's width. Work is cut into equal
    pieces, so that a long context among short ones does not hold up the rest.
    """
    cache.check(q)
    num_requests, num_heads, size = q.shape
    if out is None:
        out = torch.empty(num_requests, num_heads, cache.value_size, dtype=q.dtype, device=q.device)
    if num_requests == 0:
        return out
    key_block, num_warps, num_stages = tile_of(cache)
    max_tokens = page_table.shape[1] * cache.page_size
    pairs = num_requests * cache.num_heads
    tokens = split_tokens or split_of(pairs, max_tokens, q.device)
    splits = triton.cdiv(max_tokens, tokens)
    count = num_requests * num_heads * splits
    acc, peak, norm = empty_parts(count, cache.value_size, q.device)
    rows = max(16, triton.next_power_of_2(num_heads // cache.num_heads))
    _split_kernel[(splits, cache.num_heads, num_requests)](
        q, cache.keys, cache.keys if cache.values is None else cache.values, page_table, lengths,
        acc, peak, norm, q.stride(0), page_table.stride(0), tokens, splits,
        scale * math.log2(math.e),
        HEADS=num_heads, KV_HEADS=cache.num_heads, D=cache.value_size, R=size - cache.value_size,
        PAGE=cache.page_size, M=rows, N=key_block, SHARED=cache.values is None,
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    combine(acc, peak, norm, out, splits, lengths, tokens)
    return out


def split_of(num_pairs: int, max_tokens: int, device: torch.device) -> int:
    """Context tokens of one program, for `num_pairs` requests x KV heads of up to `max_tokens`.

    Small pieces balance contexts of different lengths; 256 only where 512 would leave
    multiprocessors idle.
    """
    enough = 4 * num_multiprocessors(device)
    return 512 if num_pairs * triton.cdiv(max_tokens, 512) >= enough else 256


def tile_of(cache: PagedKV) -> tuple[int, int, int]:
    """Keys a tile, warps and pipeline stages."""
    if cache.keys.shape[3] > 256:
        return 32, 4, 2
    return (64, 4, 2) if cache.keys.shape[3] == 256 else (32, 2, 4)
