"""The triangular solve of the delta rule's chunk form, as matrix products on one tile."""
# mypy: disallow-untyped-defs=False

import triton
import triton.language as tl


@triton.jit
def invert_unit_lower(strict, C: tl.constexpr, PRECISION: tl.constexpr):
    """(I + strict)^-1 for a strictly lower triangular `[C, C]` float32 tile, C a power of two.

    Diagonal blocks double in size: with blocks of size s inverted, a block of size 2s is
    [[P, 0], [-Q X P, Q]], X its lower left part. Every product is thus between a true inverse and
    a true input, which keeps errors small where a power series (I - A + A^2 ...) would cancel.
    """
    row = tl.arange(0, C)[:, None]
    col = tl.arange(0, C)[None, :]
    # Blocks of two need no product: the inverse of [[1, 0], [x, 1]] is [[1, 0], [-x, 1]].
    in_pair = (row ^ col) == 1
    inverse = tl.where(row == col, 1.0, tl.where(in_pair, -strict, 0.0))
    size: tl.constexpr = 2
    for level in tl.static_range(1, 8):
        size = 1 << level
        if size < C:
            in_block = (row // (2 * size)) == (col // (2 * size))
            lower_left = in_block & ((row & size) != 0) & ((col & size) == 0)
            x = tl.where(lower_left, strict, 0.0)
            x = tl.dot(inverse, x, input_precision=PRECISION)
            inverse -= tl.dot(x, inverse, input_precision=PRECISION)
    return inverse
