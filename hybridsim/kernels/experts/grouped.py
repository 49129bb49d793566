"""Grouped matrix products: every expert's rows times that expert's matrices, in one launch."""
# mypy: disallow-untyped-defs=False

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from hybridsim.kernels.experts.route import Routing
from hybridsim.kernels.launch import require


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows, output columns and inner columns of a program; its warps and pipeline stages."""

    rows: int
    columns: int
    inner: int
    num_warps: int
    num_stages: int


@triton.jit
def _locate(counts_ptr, block, E: tl.constexpr, BLOCK_E: tl.constexpr, M: tl.constexpr):
    """Expert of the `block`-th block of M rows, the block's place in it, and the expert's rows.

    Blocks are counted expert by expert; past the last one the expert is E or more.
    """
    index = tl.arange(0, BLOCK_E)
    counts = tl.load(counts_ptr + index, mask=index < E, other=0)
    blocks = (counts + M - 1) // M
    ends = tl.cumsum(blocks, axis=0)
    expert = tl.sum((ends <= block).to(tl.int32), axis=0)
    place = block - tl.sum(tl.where(index < expert, blocks, 0), axis=0)
    return expert, place, tl.sum(tl.where(index == expert, counts, 0), axis=0)


@triton.jit(do_not_specialize=["num_tokens"])
def _gate_up_kernel(
    x_ptr, weight_ptr, counts_ptr, rows_ptr, out_ptr, num_tokens, x_stride,
    E: tl.constexpr, BLOCK_E: tl.constexpr, TOP: tl.constexpr, INNER: tl.constexpr,
    WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Program (block of rows and block of columns): silu(gate) * up of one expert's tokens."""
    parts: tl.constexpr = WIDTH // N
    expert, place, count = _locate(counts_ptr, tl.program_id(0) // parts, E, BLOCK_E, M)
    if expert >= E:
        return
    row = place * M + tl.arange(0, M)
    in_rows = row < count
    column = tl.program_id(0) % parts * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    expert = expert.to(tl.int64)
    assignment = tl.load(rows_ptr + expert * num_tokens + row, mask=in_rows, other=0)
    x_rows = x_ptr + (assignment // TOP).to(tl.int64)[:, None] * x_stride + inner[None, :]
    gate_rows = weight_ptr + (expert * 2 * WIDTH + column)[None, :] * INNER + inner[:, None]
    up_rows = gate_rows + WIDTH * INNER
    gate = tl.zeros([M, N], dtype=tl.float32)
    up = tl.zeros([M, N], dtype=tl.float32)
    for at in range(0, INNER, K):
        x = tl.load(x_rows + at, mask=in_rows[:, None], other=0.0)
        gate = tl.dot(x, tl.load(gate_rows + at), gate, input_precision="ieee")
        up = tl.dot(x, tl.load(up_rows + at), up, input_precision="ieee")
    out = gate * tl.sigmoid(gate) * up
    out_tile = out_ptr + assignment.to(tl.int64)[:, None] * WIDTH + column[None, :]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=in_rows[:, None])


@triton.jit(do_not_specialize=["num_tokens"])
def _down_kernel(
    x_ptr, weight_ptr, counts_ptr, rows_ptr, out_ptr, num_tokens,
    E: tl.constexpr, BLOCK_E: tl.constexpr, INNER: tl.constexpr, WIDTH: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    """Program (block of rows and block of columns): one expert's output for its assignments."""
    parts: tl.constexpr = WIDTH // N
    expert, place, count = _locate(counts_ptr, tl.program_id(0) // parts, E, BLOCK_E, M)
    if expert >= E:
        return
    row = place * M + tl.arange(0, M)
    in_rows = row < count
    column = tl.program_id(0) % parts * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    expert = expert.to(tl.int64)
    assignment = tl.load(rows_ptr + expert * num_tokens + row, mask=in_rows, other=0).to(tl.int64)
    x_rows = x_ptr + assignment[:, None] * INNER + inner[None, :]
    weight_rows = weight_ptr + (expert * WIDTH + column)[None, :] * INNER + inner[:, None]
    total = tl.zeros([M, N], dtype=tl.float32)
    for at in range(0, INNER, K):
        x = tl.load(x_rows + at, mask=in_rows[:, None], other=0.0)
        total = tl.dot(x, tl.load(weight_rows + at), total, input_precision="ieee")
    out_tile = out_ptr + assignment[:, None] * WIDTH + column[None, :]
    tl.store(out_tile, total.to(out_ptr.dtype.element_ty), mask=in_rows[:, None])


def _power_within(size: int, most: int) -> int:
    """The largest power of two that divides `size` and is at most `most`."""
    return min(size & -size, most)


def _num_blocks(routing: Routing, rows: int) -> int:
    """A bound on blocks of `rows` rows that holds for every routing of as many tokens."""
    assignments = routing.experts.numel()
    return min(assignments, routing.counts.shape[0] + assignments // rows)


# Up to so many rows an expert in the mean -> tiles of gate_up and of down: the fastest of about
# four each, on an H200 at the shapes of Qwen3-Next and Kimi Linear, 1 to 16384 tokens.
_TILES = (
    (8, Tile(16, 64, 128, 4, 4), Tile(16, 128, 128, 4, 3)),
    (24, Tile(32, 64, 128, 4, 3), Tile(32, 128, 128, 4, 3)),
    (60, Tile(64, 64, 64, 4, 4), Tile(64, 128, 64, 4, 4)),
)
_LARGE = Tile(128, 128, 64, 8, 4), Tile(128, 256, 64, 8, 3)


def tiles_of(routing: Routing) -> tuple[Tile, Tile]:
    """Tiles of gate_up and of down that suit the mean rows of an expert."""
    rows = routing.experts.numel() / routing.counts.shape[0]
    return next(((up, down) for most, up, down in _TILES if rows <= most), _LARGE)


def gate_up(
    x: torch.Tensor, weight: torch.Tensor, routing: Routing, tile: Tile | None = None
) -> torch.Tensor:
    """silu(gate) * up `[T * k, I]` of every assignment.

    x `[T, hidden]` (token stride free), weight `[E, 2 I, hidden]` contiguous, gate rows first. I
    and hidden are multiples of 16.
    """
    num_experts, width, inner = weight.shape
    require(x.shape[1] == inner and weight.is_contiguous(), "x and weight do not fit")
    require(width % 32 == 0 and inner % 16 == 0, "sizes must be multiples of 16")
    tile = tile or tiles_of(routing)[0]
    out = x.new_empty(routing.experts.numel(), width // 2)
    columns = _power_within(width // 2, tile.columns)
    grid = (_num_blocks(routing, tile.rows) * (width // 2 // columns),)
    if out.shape[0]:
        _gate_up_kernel[grid](
            x, weight, routing.counts, routing.rows, out, x.shape[0], x.stride(0),
            E=num_experts, BLOCK_E=triton.next_power_of_2(num_experts), TOP=routing.num_active,
            INNER=inner, WIDTH=width // 2, M=tile.rows, N=columns,
            K=_power_within(inner, tile.inner), num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )  # fmt: skip
    return out


def down(
    x: torch.Tensor, weight: torch.Tensor, routing: Routing, tile: Tile | None = None
) -> torch.Tensor:
    """Outputs `[T * k, hidden]` of every assignment, not yet weighted.

    x `[T * k, I]`, weight `[E, hidden, I]`, both contiguous; sizes as in `gate_up`.
    """
    num_experts, width, inner = weight.shape
    require(x.shape[1] == inner and x.is_contiguous(), "x and weight do not fit")
    require(weight.is_contiguous(), "weight must be contiguous")
    require(width % 16 == 0 and inner % 16 == 0, "sizes must be multiples of 16")
    tile = tile or tiles_of(routing)[1]
    out = x.new_empty(x.shape[0], width)
    columns = _power_within(width, tile.columns)
    grid = (_num_blocks(routing, tile.rows) * (width // columns),)
    if out.shape[0]:
        _down_kernel[grid](
            x, weight, routing.counts, routing.rows, out, routing.experts.shape[0],
            E=num_experts, BLOCK_E=triton.next_power_of_2(num_experts), INNER=inner, WIDTH=width,
            M=tile.rows, N=columns, K=_power_within(inner, tile.inner), num_warps=tile.num_warps,
            num_stages=tile.num_stages,
        )  # fmt: skip
    return out
