"""Sizes of prefill's blocks and tiles: what was fastest on an H200."""

from collections.abc import Sequence
from dataclasses import dataclass

import triton

from hybridsim.kernels.attention.pages import PagedKV
from hybridsim.kernels.launch import num_multiprocessors


def query_block(cache: PagedKV, chunks: Sequence[tuple[int, int]], num_heads: int) -> int:
    """Rows of a query block that suit these (new, prefix) tokens: what to make the work with.

    Small blocks while there are too few to fill the card, unless prefixes (in the mean over new
    tokens) are longer than these: they can be cut, and would be read twice as often.
    """
    size = cache.keys.shape[3]
    num_tokens = sum(new for new, _ in chunks)
    if size > 256 or num_tokens <= 64:
        return 64
    few = triton.cdiv(num_tokens, 128) * num_heads <= num_multiprocessors(cache.keys.device)
    is_short = sum(new * prefix for new, prefix in chunks) <= num_tokens**2
    return 64 if size == 256 and few and is_short else 128


@dataclass(frozen=True, slots=True)
class Tile:
    """Keys a tile, warps, pipeline stages, whether the copy engine loads new tokens, and a cap on
    registers a thread (None: none)."""

    keys: int
    num_warps: int
    num_stages: int
    bulk: bool = False
    max_registers: int | None = None

    @property
    def options(self) -> dict[str, int]:
        """What Triton is told at a launch."""
        cap = {} if self.max_registers is None else {"maxnreg": self.max_registers}
        return {"num_warps": self.num_warps, "num_stages": self.num_stages, **cap}


def tile_of(cache: PagedKV, query_rows: int, num_programs: int, has_prefix: bool) -> Tile:
    """What was fastest on an H200 for blocks of `query_rows`, `num_programs` heads x blocks."""
    size = cache.keys.shape[3]
    if size > 256:
        return Tile(32, 8, 2)
    bulk = not has_prefix
    if size == 256:
        return Tile(64, 8, 2, bulk) if query_rows == 128 else Tile(32, 4, 3, True)
    if query_rows < 128:
        return Tile(64, 4, 3, bulk)
    # Two programs a multiprocessor, one's softmax beside the other's products, if all fit at once.
    fits = num_programs <= 2 * num_multiprocessors(cache.keys.device)
    if size == 128 and has_prefix and fits:
        return Tile(64, 8, 2, max_registers=128)
    return Tile(64, 8 if size >= 128 else 4, 3, bulk)
