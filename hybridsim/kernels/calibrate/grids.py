"""Where each part is measured: the shapes a simulator asks for, denser where time bends."""

from collections.abc import Mapping
from itertools import product

AXES: dict[str, tuple[str, ...]] = {
    "dense": ("tokens",),
    "head": ("rows",),
    "experts": ("tokens",),
    "recurrent_prefill": ("tokens", "sequences"),
    "recurrent_decode": ("requests",),
    "full_prefill": ("tokens", "prefix_tokens"),
    "full_prefill_of_4": ("tokens", "prefix_tokens"),
    "full_decode": ("requests", "context_tokens"),
    "copy": ("slots",),
}

# Matrix products take their time in tiles of 64 to 256 rows, hence the even steps. The library's
# kernels make exact multiples of 64 slower than their neighbours from 3000 tokens on (by up to
# 7 % on an H200), and a step's tokens are rarely such a multiple: the points lie beside them.
_DENSE = (
    *(1, 8, 16, 24, 32, 48, 64, 80, 101, 128, 129, 152, 165, 192, 229, 256),
    *(64 * i + offset for i in range(4, 36) for offset in (1, 37)),
    *(128 * i + 37 for i in range(18, 66)), 9253, 10277, 12325, 16421,
)  # fmt: skip
# From one token on, by a quarter each: first more and more experts are read, then all of them are,
# and then their products take over; tiles change with the tokens of an expert.
_EXPERTS = (
    1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 101, 128, 160, 201, 256, 320, 403,
    509, 640, 801, 1021, 1280, 1601, 2039, 2560, 3203, 4093, 5120, 6401, 8191, 10253, 12800, 16421,
)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512)
_TOKENS = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384)

GRIDS: dict[str, tuple[tuple[int, ...], ...]] = {
    "dense": (_DENSE,),
    "head": (_ROWS,),
    "experts": (_EXPERTS,),
    "recurrent_prefill": (_TOKENS, (1, 2, 3, 4, 6, 8)),
    "recurrent_decode": (_ROWS,),
    "full_prefill": (_TOKENS, (0, 512, 2048, 4096, 8192, 16384, 32768)),
    "full_prefill_of_4": (
        (16, 64, 128, 256, 512, 1024, 2048, 4096), (0, 512, 2048, 8192, 16384),
    ),
    "full_decode": (
        (1, 2, 4, 8, 16, 32, 64, 128, 256), (64, 256, 512, 1024, 2048, 4096, 8192, 16384),
    ),
    "copy": ((1, 2, 4, 8, 16, 32, 64),),
}  # fmt: skip


def points(
    name: str, thin: int = 1, grids: Mapping[str, tuple[tuple[int, ...], ...]] = GRIDS
) -> list[tuple[int, ...]]:
    """All points of a part's grid; of each axis every `thin`-th value and the last."""
    axes = ((*axis[:-1:thin], axis[-1]) for axis in grids[name])
    return list(product(*axes))
