"""Axes in plain numbers: 512 MiB rather than 2^-1, 20 rather than 2 x 10^1.

It loads matplotlib, so it stands apart from `drawing`, whose colours are wanted without it, too.
"""

from typing import Any

from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogFormatter, NullFormatter, NullLocator


class PlainLog(LogFormatter):
    """Labels what matplotlib would label on a log axis, without powers."""

    def __call__(self, x: float, pos: Any = None) -> str:
        return f"{x:,.10g}" if super().__call__(x, pos) else ""


def plain_log(axis: Axis) -> None:
    """Plain numbers on a log axis, between its decades too where it spans few of them."""
    axis.set_major_formatter(PlainLog())
    axis.set_minor_formatter(PlainLog())


def memory_sizes(axis: Axis) -> None:
    """Sizes at powers of two on a log-2 axis in GiB."""
    axis.set_major_formatter(FuncFormatter(size_text))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def size_text(gib: float, _position: int | None = None) -> str:
    """`512 MiB` below a GiB, `4 GiB` from there on."""
    return f"{gib:g} GiB" if gib >= 1 else f"{gib * 1024:g} MiB"
