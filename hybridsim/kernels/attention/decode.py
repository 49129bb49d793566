"""Decode attention: one query token a request over paged keys and values, the context split."""
# mypy: disallow-untyped-defs=False

import math

import torch
import triton
import triton.language as tl

from hybridsim.kernels.attention.combine import combine, empty_parts
from hybridsim.kernels.attention.pages import PagedKV
from hybridsim.kernels.launch import num_multiprocessors, require, require_rows


# Widths of tables differ from step to step; a version for each divisor would be compiled.
@triton.jit(do_not_specialize=["table_stride", "split_tokens", "num_splits"])
def _split_kernel(
    q_ptr, key_pages_ptr, value_pages_ptr, table_ptr, lengths_ptr, acc_ptr, peak_ptr, norm_ptr,
    q_stride, table_stride, split_tokens, num_splits, log2_scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    PAGE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Program (split, KV head, request): a KV head's query heads over a part of the context.

    Tiles are turned, keys by heads: keys come in tens, query heads of a group in ones, and the side
    that matrix units want long is the first one.
    """
    split, kv_head, request = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group: tl.constexpr = HEADS // KV_HEADS
    begin = split * split_tokens
    end = tl.minimum(begin + split_tokens, tl.load(lengths_ptr + request))
    if begin >= end:
        return
    head = tl.arange(0, M)
    col = tl.arange(0, N)
    channels = tl.arange(0, D)
    in_group = (head < group)[None, :]
    q_rows = q_ptr + request.to(tl.int64) * q_stride + (kv_head * group + head)[None, :] * (D + R)
    q = tl.load(q_rows + channels[:, None], mask=in_group, other=0.0)
    if R > 0:
        rotary = D + tl.arange(0, R)
        q_rotary = tl.load(q_rows + rotary[:, None], mask=in_group, other=0.0)
    acc = tl.zeros([D, M], dtype=tl.float32)
    peak = tl.full([M], float("-inf"), dtype=tl.float32)
    norm = tl.zeros([N, M], dtype=tl.float32)
    pages_ptr = table_ptr + request * table_stride
    page = tl.load(pages_ptr + (begin + col) // PAGE, mask=begin + col < end, other=0)
    for at in range(begin, end, N):
        position = at + col
        in_tile = (position < end)[:, None]
        cell = (page.to(tl.int64) * PAGE + position % PAGE)[:, None] * KV_HEADS + kv_head
        # Pages of the next tile, so that its keys need not wait for them: with the lookup in the
        # same step, Triton takes two stages more to load as far ahead.
        page = tl.load(pages_ptr + (position + N) // PAGE, mask=position + N < end, other=0)
        k_rows = key_pages_ptr + cell * (D + R)
        k = tl.load(k_rows + channels[None, :], mask=in_tile, other=0.0)
        scores = tl.dot(k, q, input_precision="ieee")
        if R > 0:
            k_rotary = tl.load(k_rows + rotary[None, :], mask=in_tile, other=0.0)
            scores = tl.dot(k_rotary, q_rotary, scores, input_precision="ieee")
        scores = tl.where(in_tile, scores, float("-inf"))
        # Finite from the first tile on, which holds a key.
        new_peak = tl.maximum(peak, tl.max(scores, axis=0) * log2_scale)
        weights = tl.exp2(scores * log2_scale - new_peak[None, :])
        shrink = tl.exp2(peak - new_peak)[None, :]
        # Summed over keys only at the end: a sum over warps in each tile would cost two barriers.
        norm = norm * shrink + weights
        if SHARED:
            v = k
        else:
            v_rows = value_pages_ptr + cell * D
            v = tl.load(v_rows + channels[None, :], mask=in_tile, other=0.0)
        acc = tl.dot(tl.trans(v), weights.to(v.dtype), acc * shrink, input_precision="ieee")
        peak = new_peak
    part = (request * HEADS + kv_head * group + head) * num_splits + split
    tl.store(acc_ptr + part[None, :] * D + channels[:, None], acc, mask=in_group)
    tl.store(peak_ptr + part, peak, mask=head < group)
    tl.store(norm_ptr + part, tl.sum(norm, axis=0), mask=head < group)


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
    require_rows(q=q)
    num_requests, num_heads, size = q.shape
    if out is None:
        out = torch.empty(num_requests, num_heads, cache.value_size, dtype=q.dtype, device=q.device)
    if num_requests == 0:
        return out
    key_block, num_warps, num_stages = TILE
    max_tokens = page_table.shape[1] * cache.page_size
    pairs = num_requests * cache.num_heads
    tokens = split_tokens or split_of(pairs, max_tokens, q.device, cache.values is None)
    splits = triton.cdiv(max_tokens, tokens)
    count = num_requests * num_heads * splits
    require(count * cache.value_size < 2**31, f"{count} parts of {cache.value_size} channels")
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


def split_of(num_pairs: int, max_tokens: int, device: torch.device, is_latent: bool = False) -> int:
    """Context tokens of one program, for `num_pairs` requests x KV heads of up to `max_tokens`.

    Long pieces cost less to join, small ones balance contexts of different lengths: the longest
    that leaves about two programs a multiprocessor. Parts of a latent cache are the largest (all
    heads, 512 channels each), and its rows the fewest, hence its wider range.
    """
    enough = 1.9 * num_multiprocessors(device)
    lengths = (2048, 1024, 512, 256, 128) if is_latent else (1024, 512, 256)
    for tokens in lengths[:-1]:
        if num_pairs * triton.cdiv(max_tokens, tokens) >= enough:
            return tokens
    return lengths[-1]


# Keys a tile, warps and pipeline stages, measured on an H200. Tiles of 32 keys leave room for
# several programs a multiprocessor.
TILE = (32, 4, 3)
