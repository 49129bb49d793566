"""Paged keys and values of one attention layer, and writing new ones into them."""
# mypy: disallow-untyped-defs=False

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import require


@dataclass(frozen=True, slots=True, eq=False)
class PagedKV:
    """keys `[P, B, Hkv, D]`: P pages of B tokens. values `[P, B, Hkv, Dv]`, or None for MLA.

    MLA keeps one latent vector a token: Hkv is 1, the values are the first `value_size` channels of
    the keys (the latent part), the rest is the rotary part. Its decompressed form, as engines use
    for prefill, has keys of value_size + rotary channels and values of their own in every head.
    """

    keys: torch.Tensor
    values: torch.Tensor | None
    value_size: int

    @staticmethod
    def gqa(keys: torch.Tensor, values: torch.Tensor) -> "PagedKV":
        """Separate keys and values of equal page layout; keys may have rotary channels besides."""
        same = keys.shape[:3] == values.shape[:3] and keys.shape[3] >= values.shape[3]
        require(same, "keys and values must agree in pages, tokens and heads")
        return PagedKV(keys, values, values.shape[3])

    @staticmethod
    def latent(pages: torch.Tensor, value_size: int) -> "PagedKV":
        """MLA: pages `[P, B, 1, value_size + rotary]`."""
        require(pages.shape[2] == 1, "a latent cache has one head")
        return PagedKV(pages, None, value_size)

    @property
    def page_size(self) -> int:
        return self.keys.shape[1]

    @property
    def num_heads(self) -> int:
        return self.keys.shape[2]

    @property
    def rotary_size(self) -> int:
        """Channels of a key beyond those of a value."""
        return self.keys.shape[3] - self.value_size

    def check(self, q: torch.Tensor) -> None:
        """Raise ValueError where q `[T, H, D]` and the pages do not fit each other."""
        require(q.shape[1] % self.num_heads == 0, "query heads must be a multiple of KV heads")
        require(q.shape[2] == self.keys.shape[3], "queries and keys differ in size")
        for size in (self.value_size, self.rotary_size):
            require(size in (0, 16, 32, 64, 128, 256, 512), f"head part of {size} channels")
        require(self.keys.is_contiguous(), "pages must be contiguous")
        require(self.values is None or self.values.is_contiguous(), "pages must be contiguous")


@triton.jit
def _write_kernel(
    new_ptr, pages_ptr, rows_ptr, new_stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    row = tl.load(rows_ptr + token).to(tl.int64)
    offset = tl.arange(0, BLOCK)
    if row >= 0:
        values = tl.load(new_ptr + token * new_stride + offset, mask=offset < WIDTH)
        tl.store(pages_ptr + row * WIDTH + offset, values, mask=offset < WIDTH)


def write_rows(new: torch.Tensor, pages: torch.Tensor, rows: torch.Tensor) -> None:
    """pages, seen as `[P * B, Hkv, D]`, gets new[t] `[Hkv, D]` at row rows[t] (int32; -1: skipped).

    new `[T, Hkv, D]`: heads and channels contiguous, token stride free.
    """
    width = new.shape[1] * new.shape[2]
    require(pages.shape[2:] == new.shape[1:], "new rows and pages differ in shape")
    if new.shape[0]:
        _write_kernel[(new.shape[0],)](
            new, pages, rows, new.stride(0), WIDTH=width, BLOCK=triton.next_power_of_2(width)
        )
