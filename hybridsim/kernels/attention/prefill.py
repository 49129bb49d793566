"""Causal attention of new tokens over a paged prefix and over themselves."""
# mypy: disallow-untyped-defs=False

import math

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from hybridsim.kernels.attention.combine import combine_blocks, empty_parts
from hybridsim.kernels.attention.pages import PagedKV
from hybridsim.kernels.attention.sizes import tile_of
from hybridsim.kernels.attention.tile import attend_tile
from hybridsim.kernels.attention.work import PrefillWork
from hybridsim.kernels.launch import output_of, require, require_rows


@triton.jit(do_not_specialize=["table_stride"])
def _prefill_kernel(
    q_ptr, k_ptr, v_ptr, k_block, v_block, key_pages_ptr, value_pages_ptr, table_ptr, pieces_ptr,
    out_ptr, acc_ptr, peak_ptr, norm_ptr, q_stride, k_stride, v_stride, table_stride, log2_scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    PAGE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SHARED: tl.constexpr,
    HAS_PREFIX: tl.constexpr, BULK: tl.constexpr,
):  # fmt: skip
    """Program (head, piece): see `PrefillWork`. Parts go to acc_ptr, peak_ptr and norm_ptr.

    BULK: whole tiles of new tokens come through the descriptors k_block and v_block, by the copy
    engine, which works out their addresses itself.
    """
    head = tl.program_id(0)
    piece = pieces_ptr + tl.program_id(1) * 8
    kv_head = head // (HEADS // KV_HEADS)
    first = tl.load(piece)
    length = tl.load(piece + 1)
    sequence = tl.load(piece + 2)
    start = tl.load(piece + 3)
    new_end = tl.load(piece + 6)
    part = tl.load(piece + 7)
    row = tl.arange(0, M)
    col = tl.arange(0, N)
    channels = tl.arange(0, D)[None, :]
    # Only bases are 64 bits wide; offsets within a tile are cheap.
    cell = (first + row).to(tl.int64) * HEADS + head
    in_block = (row < length)[:, None]
    q_tile = q_ptr + first.to(tl.int64) * q_stride + head * (D + R) + row[:, None] * q_stride
    q = tl.load(q_tile + channels, mask=in_block, other=0.0)
    q_rotary = q
    if R > 0:
        rotary = D + tl.arange(0, R)[None, :]
        q_rotary = tl.load(q_tile + rotary, mask=in_block, other=0.0)
    acc = tl.zeros([M, D], dtype=tl.float32)
    peak = tl.full([M], float("-inf"), dtype=tl.float32)
    norm = tl.zeros([M], dtype=tl.float32)
    if HAS_PREFIX:
        begin = tl.load(piece + 4)
        end = tl.load(piece + 5)
        pages_ptr = table_ptr + sequence * table_stride
        page = tl.load(pages_ptr + (begin + col) // PAGE, mask=begin + col < end, other=0)
        for at in range(begin, end, N):
            position = at + col
            in_tile = (position < end)[:, None]
            kv_row = (page.to(tl.int64) * PAGE + position % PAGE)[:, None] * KV_HEADS + kv_head
            # Pages of the next tile: see the decode kernel.
            page = tl.load(pages_ptr + (position + N) // PAGE, mask=position + N < end, other=0)
            k_rows = key_pages_ptr + kv_row * (D + R)
            k = tl.load(k_rows + channels, mask=in_tile, other=0.0)
            k_rotary = k
            if R > 0:
                k_rotary = tl.load(k_rows + rotary, mask=in_tile, other=0.0)
            v = k
            if not SHARED:
                v = tl.load(value_pages_ptr + kv_row * D + channels, mask=in_tile, other=0.0)
            acc, peak, norm = attend_tile(
                acc, peak, norm, q, q_rotary, k, k_rotary, v, (position < end)[None, :],
                log2_scale, R, True,
            )  # fmt: skip
    # New tokens before this block are seen by all its rows; those of the block causally.
    num_before = first - start
    whole = tl.minimum(num_before, new_end) // N * N
    k_tile = k_ptr + kv_head * (D + R) + col[:, None] * k_stride
    v_tile = v_ptr + kv_head * D + col[:, None] * v_stride
    for at in range(0, whole, N):
        k_rows = k_tile + (start + at).to(tl.int64) * k_stride
        k = k_block.load([start + at, kv_head * (D + R)]) if BULK else tl.load(k_rows + channels)
        k_rotary = k
        if R > 0:
            k_rotary = tl.load(k_rows + rotary)
        v = k
        if BULK:
            v = v_block.load([start + at, kv_head * D])
        elif not SHARED:
            v = tl.load(v_tile + (start + at).to(tl.int64) * v_stride + channels)
        acc, peak, norm = attend_tile(
            acc, peak, norm, q, q_rotary, k, k_rotary, v, in_block, log2_scale, R, False
        )
    for at in range(whole, new_end, N):
        position = at + col
        in_tile = (position < new_end)[:, None]
        k_rows = k_tile + (start + at).to(tl.int64) * k_stride
        k = tl.load(k_rows + channels, mask=in_tile, other=0.0)
        k_rotary = k
        if R > 0:
            k_rotary = tl.load(k_rows + rotary, mask=in_tile, other=0.0)
        v = k
        if not SHARED:
            v_rows = v_tile + (start + at).to(tl.int64) * v_stride
            v = tl.load(v_rows + channels, mask=in_tile, other=0.0)
        is_seen = position[None, :] <= (num_before + row)[:, None]
        acc, peak, norm = attend_tile(
            acc, peak, norm, q, q_rotary, k, k_rotary, v, is_seen, log2_scale, R, True
        )
    if acc_ptr is None or part < 0:
        out_rows = out_ptr + cell[:, None] * D + channels
        tl.store(out_rows, (acc / norm[:, None]).to(out_ptr.dtype.element_ty), mask=in_block)
    if acc_ptr is not None:  # noqa: SIM102, the outer test is static
        if part >= 0:
            place = (part.to(tl.int64) * M + row) * HEADS + head
            tl.store(acc_ptr + place[:, None] * D + channels, acc, mask=in_block)
            tl.store(peak_ptr + place, peak, mask=row < length)
            tl.store(norm_ptr + place, norm, mask=row < length)


def prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cache: PagedKV,
    page_table: torch.Tensor,
    work: PrefillWork,
    scale: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs `[T, H, Dv]` of packed sequences of new tokens, each after a prefix in the pages.

    q `[T, H, D]`, k `[T, Hkv, D]`, v `[T, Hkv, Dv]`: heads and channels contiguous, token stride
    free; for MLA v is k's first Dv channels (a view) and is not read. page_table int32
    `[N, max_pages]`. work: of these sequences, in blocks of `query_block` rows.
    """
    cache.check(q)
    _check(q, k, v, cache, work)
    out = output_of(out, [*q.shape[:2], cache.value_size], q)
    if work.num_blocks == 0:
        return out
    num_heads = q.shape[1]
    tile = tile_of(cache, work.query_rows, num_heads * work.num_blocks, work.has_prefix)
    acc = peak = norm = None
    if work.num_parts:
        count = work.num_parts * work.query_rows * num_heads
        acc, peak, norm = empty_parts(count, cache.value_size, q.device)
    k_block, v_block = _blocks(k, v, cache, tile.keys) if tile.bulk else (None, None)
    _prefill_kernel[(num_heads, len(work.pieces))](
        q, k, v, k_block, v_block,
        cache.keys, cache.keys if cache.values is None else cache.values, page_table,
        work.pieces, out, acc, peak, norm, q.stride(0), k.stride(0), v.stride(0),
        page_table.stride(0), scale * math.log2(math.e), HEADS=num_heads, KV_HEADS=cache.num_heads,
        D=cache.value_size, R=cache.rotary_size, PAGE=cache.page_size, M=work.query_rows,
        N=tile.keys, SHARED=cache.values is None, HAS_PREFIX=work.has_prefix,
        BULK=k_block is not None, **tile.options,
    )  # fmt: skip
    if acc is not None and peak is not None and norm is not None:
        combine_blocks(acc, peak, norm, work, out)
    return out


def _check(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: PagedKV, work: PrefillWork
) -> None:
    """Raise ValueError where new tokens fit neither the pages nor the work."""
    require(work.num_tokens == q.shape[0], f"work has {work.num_tokens} tokens, q {q.shape[0]}")
    for name, x, size in (("k", k, q.shape[2]), ("v", v, cache.value_size)):
        shape = [q.shape[0], cache.num_heads, size]
        require([*x.shape] == shape, f"{name} is {[*x.shape]}; allowed: {shape}")
    require_rows(q=q, k=k, v=None if cache.values is None else v)


def _blocks(
    k: torch.Tensor, v: torch.Tensor, cache: PagedKV, num_keys: int
) -> tuple[TensorDescriptor | None, TensorDescriptor | None]:
    """Descriptors of tiles of `num_keys` tokens; None where alignment forbids them."""
    if any(x.data_ptr() % 16 or x.stride(0) * x.element_size() % 16 for x in (k, v)):
        return None, None
    tile = [num_keys, cache.value_size]
    k_block, v_block = (
        TensorDescriptor(x, [x.shape[0], x.shape[1] * x.shape[2]], [x.stride(0), 1], tile)
        for x in (k, v)
    )
    return k_block, v_block
