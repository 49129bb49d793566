"""The memory ledger as a picture: hybrid against all full attention, over the context length."""

import logging
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hybridsim.drawing import COLORS, GREY
from hybridsim.errors import UserError
from hybridsim.files import written_whole
from hybridsim.models import LedgerRow
from hybridsim.units import format_bytes

_HYBRID, _FULL = COLORS[:2]


def draw_ledger(
    path: Path,
    title: str,
    rows: Sequence[LedgerRow],
    curve: Sequence[LedgerRow],
    crossover_tokens: int | None,
) -> None:
    """Write the figure to `path`; its ending says the format.

    rows: marked and labelled contexts; curve: many more between them, for smooth lines; both in
    rising context. crossover_tokens is marked where it lies inside. UserError when `path` cannot
    be written or its ending is no picture format.
    """
    picture = path.suffix.removeprefix(".").lower()
    if picture not in Figure().canvas.get_supported_filetypes():
        ending = repr(path.suffix) if path.suffix else "none"
        allowed = "a name that ends in .png, .svg or .pdf"
        raise UserError("--figure", f"{str(path)!r} has the ending {ending}; allowed: {allowed}")
    # matplotlib tells of its font cache, which is no news to our user
    logging.getLogger("matplotlib.font_manager").setLevel(logging.WARNING)
    canvas = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = canvas.subplots()
    _draw_rows(axes, rows, curve)
    if crossover_tokens and rows[0].context_tokens < crossover_tokens < rows[-1].context_tokens:
        _mark_crossover(axes, crossover_tokens)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.legend(frameon=False, fontsize=9)
    with written_whole(path) as temporary:
        canvas.savefig(temporary, format=picture)


def _draw_rows(axes: Axes, rows: Sequence[LedgerRow], curve: Sequence[LedgerRow]) -> None:
    contexts = [row.context_tokens for row in rows]
    for label, color, marker, size_bytes in (
        ("all layers full attention", _FULL, "s", lambda row: row.all_full_bytes),
        ("hybrid: KV and one state", _HYBRID, "o", lambda row: row.hybrid_bytes),
    ):
        axes.plot([r.context_tokens for r in curve], list(map(size_bytes, curve)), color=color)
        axes.plot(contexts, list(map(size_bytes, rows)), color=color, marker=marker, ls="")
        axes.plot([], [], color=color, marker=marker, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(contexts, [f"{tokens:,}" for tokens in contexts], rotation=30, ha="right")
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda size_bytes, _: format_bytes(size_bytes))
    axes.set_xlabel("context (tokens)", fontsize=9.5)
    axes.set_ylabel("memory of one request", fontsize=9.5)
    axes.tick_params(labelsize=9)
    axes.grid(True, color="#e6e6e6", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def _mark_crossover(axes: Axes, crossover_tokens: int) -> None:
    axes.axvline(crossover_tokens, color=GREY, linestyle=(0, (6, 3)), linewidth=1.3)
    axes.annotate(
        f"crossover {crossover_tokens:,}",
        (crossover_tokens, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 2),
        textcoords="offset points",
        fontsize=9,
        color=GREY,
    )
