"""Where each part is measured: the shapes a simulator asks for, denser where time bends."""

from itertools import product

AXES: dict[str, tuple[str, ...]] = {
    "dense": ("tokens",),
    "head": ("rows",),
    "recurrent_prefill": ("tokens", "sequences"),
    "recurrent_decode": ("requests",),
    "full_prefill": ("tokens", "prefix_tokens"),
    "full_decode": ("requests", "context_tokens"),
    "copy": ("slots",),
}

# Matrix products take their time in tiles of 64 to 256 rows, hence the even steps. The library's
# kernels make exact multiples of 64 slower than their neighbours from 3000 tokens on (by up to
# 7 % on an H200), and a step's tokens are rarely such a multiple: the points lie beside them.
_DENSE = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 101, 128, 129, 152, 165, 192, 229, 256),
    *(64 * i + offset for i in range(4, 64) for offset in (1, 37)),
    *(128 * i + 37 for i in range(32, 66)), 9253, 10277, 12325, 16421,
)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 512)

GRIDS: dict[str, list[tuple[int, ...]]] = {
    "dense": [(n,) for n in _DENSE],
    "head": [(n,) for n in _ROWS],
    "recurrent_prefill": list(
        product((16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384), (1, 2, 3, 4, 6, 8))
    ),
    "recurrent_decode": [(n,) for n in _ROWS],
    "full_prefill": list(
        product((16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384), (0, 512, 2048, 8192, 32768))
    ),
    "full_decode": list(
        product((1, 4, 8, 16, 32, 64, 128, 256), (64, 256, 1024, 2048, 4096, 8192, 16384))
    ),
    "copy": [(n,) for n in (1, 2, 4, 8, 16, 32, 64)],
}
