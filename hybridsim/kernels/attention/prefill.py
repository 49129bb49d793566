"""Causal attention of new tokens over a paged prefix and over themselves."""
# mypy: disallow-untyped-defs=False

import math

import torch
import triton
import triton.language as tl

from hybridsim.kernels.attention.combine import combine, empty_parts
from hybridsim.kernels.attention.pages import PagedKV
from hybridsim.kernels.attention.tile import attend_tile
from hybridsim.kernels.launch import num_multiprocessors, require
from hybridsim.kernels.plan import PackedPlan


@triton.jit(do_not_specialize=["table_stride", "split_tokens"])
def _prefill_kernel(
    q_ptr, k_ptr, v_ptr, key_pages_ptr, value_pages_ptr, table_ptr, prefix_ptr,
    blocks_ptr, sequences_ptr, out_ptr, acc_ptr, peak_ptr, norm_ptr,
    q_stride, k_stride, v_stride, table_stride, split_tokens, log2_scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr,
    PAGE: tl.constexpr, M: tl.constexpr, N: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Program (head, query block, split of the prefix).

    Blocks run from the last, the longest of a sequence, on. The first split also takes the new
    tokens. With several splits, parts go to acc_ptr, peak_ptr and norm_ptr instead of out_ptr.
    """
    head, split, num_splits = tl.program_id(0), tl.program_id(2), tl.num_programs(2)
    block = tl.num_programs(1) - 1 - tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    first = tl.load(blocks_ptr + block * 3)
    length = tl.load(blocks_ptr + block * 3 + 1)
    sequence = tl.load(blocks_ptr + block * 3 + 2)
    start = tl.load(sequences_ptr + sequence * 4 + 3)
    num_prefix = tl.load(prefix_ptr + sequence)
    prefix_begin = split * split_tokens
    prefix_end = tl.minimum(prefix_begin + split_tokens, num_prefix)
    row = tl.arange(0, M)
    cell = (first + row).to(tl.int64) * HEADS + head
    if acc_ptr is not None:  # noqa: SIM102, the outer test is static
        if split > 0 and prefix_begin >= num_prefix:
            tl.store(peak_ptr + cell * num_splits + split, float("-inf"), mask=row < length)
            return
    col = tl.arange(0, N)
    channels = tl.arange(0, D)
    in_block = (row < length)[:, None]
    q_rows = (first + row).to(tl.int64)[:, None] * q_stride + head * (D + R)
    q = tl.load(q_ptr + q_rows + channels[None, :], mask=in_block, other=0.0)
    q_rotary = q
    if R > 0:
        rotary = D + tl.arange(0, R)
        q_rotary = tl.load(q_ptr + q_rows + rotary[None, :], mask=in_block, other=0.0)
    acc = tl.zeros([M, D], dtype=tl.float32)
    peak = tl.full([M], float("-inf"), dtype=tl.float32)
    norm = tl.zeros([M], dtype=tl.float32)
    for at in range(prefix_begin, prefix_end, N):
        position = at + col
        in_tile = position < prefix_end
        page = tl.load(
            table_ptr + sequence * table_stride + position // PAGE, mask=in_tile, other=0
        )
        kv_row = (page.to(tl.int64) * PAGE + position % PAGE) * KV_HEADS + kv_head
        acc, peak, norm = attend_tile(
            acc, peak, norm, q, q_rotary, key_pages_ptr + kv_row * (D + R),
            value_pages_ptr + kv_row * D, in_tile[None, :], in_tile, log2_scale,
            D, R, SHARED, True,
        )  # fmt: skip
    # New tokens before this block are seen by all its rows; those of the block causally.
    num_before = first - start
    whole = num_before // N * N
    new_end = num_before + length
    if split > 0:
        whole = 0
        new_end = 0
    for at in range(0, whole, N):
        token = (start + at + col).to(tl.int64)
        acc, peak, norm = attend_tile(
            acc, peak, norm, q, q_rotary, k_ptr + token * k_stride + kv_head * (D + R),
            v_ptr + token * v_stride + kv_head * D, in_block, token >= 0, log2_scale,
            D, R, SHARED, False,
        )  # fmt: skip
    for at in range(whole, new_end, N):
        position = at + col
        token = (start + position).to(tl.int64)
        is_seen = position[None, :] <= (num_before + row)[:, None]
        acc, peak, norm = attend_tile(
            acc, peak, norm, q, q_rotary, k_ptr + token * k_stride + kv_head * (D + R),
            v_ptr + token * v_stride + kv_head * D, is_seen, position < new_end,
            log2_scale, D, R, SHARED, True,
        )  # fmt: skip
    if acc_ptr is None:
        out_rows = out_ptr + cell[:, None] * D + channels[None, :]
        tl.store(out_rows, (acc / norm[:, None]).to(out_ptr.dtype.element_ty), mask=in_block)
    else:
        part = cell * num_splits + split
        tl.store(acc_ptr + part[:, None] * D + channels[None, :], acc, mask=in_block)
        tl.store(peak_ptr + part, peak, mask=row < length)
        tl.store(norm_ptr + part, norm, mask=row < length)


def prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cache: PagedKV,
    page_table: torch.Tensor,
    num_prefix: torch.Tensor,
    plan: PackedPlan,
    scale: float,
    out: torch.Tensor | None = None,
    max_prefix: int | None = None,
) -> torch.Tensor:
    """Outputs `[T, H, Dv]` of packed sequences of new tokens, each after a prefix in the pages.

    q `[T, H, D]`, k `[T, Hkv, D]`, v `[T, Hkv, Dv]`: heads and channels contiguous, token stride
    free; for MLA v is k's first Dv channels (a view) and is not read. page_table int32
    `[N, max_pages]`; num_prefix int32 `[N]`, tokens of each sequence already in the pages. plan:
    one task a sequence, no checkpoints; its chunk size is the query block, see `query_block`.
    max_prefix: a bound on num_prefix known on the host, by which the number of splits is chosen;
    None takes the table's width.
    """
    cache.check(q)
    require(plan.num_tokens == q.shape[0], f"plan has {plan.num_tokens} tokens, q {q.shape[0]}")
    if out is None:
        out = torch.empty(*q.shape[:2], cache.value_size, dtype=q.dtype, device=q.device)
    if plan.num_chunks == 0:
        return out
    size = cache.keys.shape[3]
    key_block, num_warps, num_stages = tile_of(cache, plan.chunk_size)
    if max_prefix is None:
        max_prefix = page_table.shape[1] * cache.page_size
    split_tokens = split_of(q.shape[1] * plan.num_chunks, max_prefix, q.device)
    splits = max(1, triton.cdiv(max_prefix, split_tokens))
    acc = peak = norm = None
    if splits > 1:
        count = q.shape[0] * q.shape[1] * splits
        acc, peak, norm = empty_parts(count, cache.value_size, q.device)
    _prefill_kernel[(q.shape[1], plan.num_chunks, splits)](
        q, k, v, cache.keys, cache.keys if cache.values is None else cache.values, page_table,
        num_prefix, plan.chunks, plan.sequences, out, acc, peak, norm,
        q.stride(0), k.stride(0), v.stride(0), page_table.stride(0), split_tokens,
        scale * math.log2(math.e), HEADS=q.shape[1], KV_HEADS=cache.num_heads,
        D=cache.value_size, R=size - cache.value_size, PAGE=cache.page_size, M=plan.chunk_size,
        N=key_block, SHARED=cache.values is None, num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    if acc is not None and peak is not None and norm is not None:
        combine(acc, peak, norm, out, splits)
    return out


def split_of(num_programs: int, max_prefix: int, device: torch.device) -> int:
    """Prefix tokens of one program, for `num_programs` heads x query blocks.

    The whole prefix where there are programs enough; else 2048, or less (256 at least) until there
    are two programs a multiprocessor. Without splits, a short prompt after a long prefix would
    keep a few multiprocessors busy for long and the rest idle.
    """
    enough = 2 * num_multiprocessors(device)
    if num_programs >= enough:
        return max(max_prefix, 1)
    tokens = 2048
    while tokens > 256 and num_programs * triton.cdiv(max_prefix, tokens) < enough:
        tokens //= 2
    return tokens


def query_block(cache: PagedKV, num_tokens: int, num_heads: int) -> int:
    """Rows of a query block that suit the sizes: the chunk size to make a plan with."""
    size = cache.keys.shape[3]
    if size > 256:
        return 64
    few = triton.cdiv(num_tokens, 128) * num_heads <= num_multiprocessors(cache.keys.device)
    return 64 if size == 256 and few else 128


def tile_of(cache: PagedKV, query_rows: int) -> tuple[int, int, int]:
    """Keys a tile, warps and pipeline stages."""
    size = cache.keys.shape[3]
    if size > 256:
        return 32, 8, 2
    if size == 256:
        return (64, 8, 2) if query_rows == 128 else (32, 4, 3)
    return 64, 8 if size == 128 and query_rows == 128 else 4, 3
