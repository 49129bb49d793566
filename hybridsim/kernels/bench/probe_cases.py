"""What the card does with next to no arithmetic: yardsticks beside which kernels are judged."""
# mypy: disallow-untyped-defs=False

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from hybridsim.kernels import rows
from hybridsim.kernels.bench.case import Case, MakeCall, permutation, random_normal
from hybridsim.kernels.bench.timing import Call, rotations

WORDS = 2048  # a block of int32


@triton.jit
def _read_kernel(x_ptr, out_ptr, BLOCKS: tl.constexpr, WORDS: tl.constexpr):
    """Program: the sum of `BLOCKS` blocks, which keeps the compiler from leaving out the loads."""
    base = x_ptr + tl.program_id(0).to(tl.int64) * (BLOCKS * WORDS) + tl.arange(0, WORDS)
    total = tl.zeros([WORDS], dtype=tl.int32)
    for block in tl.static_range(BLOCKS):
        total += tl.load(base + block * WORDS)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _empty_kernel(x_ptr):
    if tl.program_id(0) < 0:
        tl.store(x_ptr, 0.0)


def read(x: torch.Tensor, blocks: int = 2) -> torch.Tensor:
    """Sums `[programs]` of x, int32, of a multiple of `blocks` * WORDS numbers."""
    programs = x.numel() // (blocks * WORDS)
    out = torch.empty(programs, dtype=torch.int32, device=x.device)
    _read_kernel[(programs,)](x, out, BLOCKS=blocks, WORDS=WORDS, num_warps=8)
    return out


def _read_maker(num_bytes: int) -> MakeCall:
    def make(seed: int) -> Call:
        x = permutation(num_bytes // 4, seed)
        return lambda: read(x)

    return make


def _copy_maker(batch: int, dtype: torch.dtype) -> MakeCall:
    def make(seed: int) -> Call:
        pool = random_normal((1, 2 * batch, 16 * 128 * 128), seed, dtype)
        order = permutation(2 * batch, seed + 7)
        sources, targets = order[:batch].contiguous(), order[batch:].contiguous()

        def copy() -> torch.Tensor:
            rows.copy_rows(pool, sources, targets)
            return targets

        return copy

    return make


def _empty_maker(seed: int) -> Call:
    x = torch.ones(1, device="cuda")

    def launch() -> torch.Tensor:
        for _ in range(2):
            _empty_kernel[(512,)](x)
        return x

    return launch


def probe_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """Reading what decode attention reads at batch 1 (16384 tokens: MLA, two heads of 256, eight of
    128), copying what recurrent decode moves, two empty launches."""
    for num_bytes in (16384 * 1152, 2**25, 2**26):
        yield Case("probe read", {"bytes": num_bytes}, num_bytes, 0,
                   {"ours": _read_maker(num_bytes)}, rotations(num_bytes))  # fmt: skip
    for dtype in (torch.float32, torch.bfloat16):
        for batch in (64,) if quick else (64, 128, 256):
            num_bytes = 2 * batch * 16 * 128 * 128 * dtype.itemsize
            name = f"probe copy {str(dtype).removeprefix('torch.')} state"
            yield Case(name, {"batch": batch, "heads": 16}, num_bytes, 0,
                       {"ours": _copy_maker(batch, dtype)}, rotations(num_bytes))  # fmt: skip
    yield Case("probe two empty launches", {"programs": 512}, 0, 0, {"ours": _empty_maker}, 1)
