"""Copy rows of a pool by index, all layers in one launch: states from slot to slot, KV pages."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import require

_WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))
_BLOCK_BYTES = 4096


@triton.jit
def _copy_kernel(
    pool_ptr, sources_ptr, targets_ptr, layer_stride, row_stride, row_words, blocks_per_row,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (pair and block, layer): one block of one row's words."""
    pair = tl.program_id(0) // blocks_per_row
    block = tl.program_id(0) % blocks_per_row
    source = tl.load(sources_ptr + pair).to(tl.int64)
    target = tl.load(targets_ptr + pair).to(tl.int64)
    offset = block * BLOCK + tl.arange(0, BLOCK)
    inside = offset < row_words
    layer_ptr = pool_ptr + tl.program_id(1).to(tl.int64) * layer_stride
    words = tl.load(layer_ptr + source * row_stride + offset, mask=inside)
    tl.store(layer_ptr + target * row_stride + offset, words, mask=inside)


def copy_rows(pool: torch.Tensor, sources: torch.Tensor, targets: torch.Tensor) -> None:
    """pool[:, targets[i]] = pool[:, sources[i]] for all i, for every layer, in one launch.

    pool `[L, R, ...]` contiguous, any dtype: R states (copy-on-write, checkpoints) or R KV pages;
    sources, targets int32 `[P]`. A target may be neither a source nor a second target in one call.
    """
    require(pool.dim() >= 2, "pool must be [layers, rows, ...]")
    require(pool.is_contiguous(), "pool must be contiguous")
    require(sources.shape == targets.shape, "as many targets as sources")
    if sources.shape[0] == 0 or pool.numel() == 0:
        return
    row_bytes = pool[0, 0].numel() * pool.element_size()
    size, dtype = next((s, d) for s, d in _WORDS if row_bytes % s == 0)
    words = pool.view(torch.uint8) if pool.dim() > 2 else pool.unsqueeze(-1).view(torch.uint8)
    words = words.view(dtype)
    row_words = row_bytes // size
    block = min(_BLOCK_BYTES // size, triton.next_power_of_2(row_words))
    blocks_per_row = triton.cdiv(row_words, block)
    _copy_kernel[(sources.shape[0] * blocks_per_row, pool.shape[0])](
        words, sources, targets, pool.shape[1] * row_words, row_words, row_words, blocks_per_row,
        BLOCK=block, num_warps=4,
    )  # fmt: skip
