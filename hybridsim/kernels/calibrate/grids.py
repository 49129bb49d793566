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

# Matrix products take their time in tiles of 64 to 256 rows, hence the even steps.
_DENSE = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512),
    *range(544, 1025, 32), *range(1088, 4097, 64), *range(4224, 8449, 128), 9216, 10240, 12288,
    16384,
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
