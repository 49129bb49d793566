"""Figures of analyses: hit rate over memory, and over (KV, states)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hybridsim.analysis.steps import FloatArray
from hybridsim.drawing import COLORS, GREY, save_png
from hybridsim.request import Int64Array
from hybridsim.ticks import memory_sizes

GIB = 2**30


def draw_curves(
    path: Path,
    title: str,
    sizes_bytes: Int64Array,
    rates: Mapping[str, FloatArray],
    ceiling: float,
    bounds: Mapping[int, float],
) -> None:
    """Write a PNG: a line a policy over memory in GiB (log 2), the infinite cache dashed.

    bounds: memory in bytes -> what no policy passes there; drawn as steps, since it bounds smaller
    memories as well, but not the straight line to the next.
    """
    figure = Figure(figsize=(7.2, 4.4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for index, (label, line) in enumerate(rates.items()):
        color = COLORS[index % len(COLORS)]
        axes.plot(sizes_bytes / GIB, line * 100, label=label, color=color, linewidth=1.8)
    if bounds:
        places = sorted(bounds)
        axes.plot(
            [place / GIB for place in places], [100 * bounds[place] for place in places],
            color=GREY, linewidth=1.4, drawstyle="steps-pre", label="nothing hits more (proven)",
        )  # fmt: skip
    axes.axhline(ceiling * 100, color=GREY, linestyle=(0, (6, 3)), linewidth=1.2)
    axes.annotate(
        f"infinite cache: {ceiling * 100:.2f} %", (0.01, ceiling * 100), xytext=(2, 3),
        xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=8, color=GREY,
    )  # fmt: skip
    _memory_axis(axes)
    axes.set(title=title, ylabel="Token hit rate (%)")
    axes.set_ylim(0, ceiling * 110 or 1)
    axes.grid(alpha=0.25)
    axes.legend(title="checkpoint", frameon=False)
    save_png(figure, path)


def draw_surface(
    path: Path,
    title: str,
    kv_bytes: Int64Array,
    states_bytes: Int64Array,
    rates: FloatArray,
    bounds: Mapping[int, float],
) -> None:
    """Write a PNG: a heat map over KV and state memory, both in GiB on log-2 axes.

    rates: `[num_kv_sizes, num_state_sizes]`. Dotted lines join points of equal total memory; the
    dot on each is its best split. bounds: total memory in bytes -> what no split and no policy
    passes, written beside the best rate.
    """
    figure = Figure(figsize=(7.2, 5.4), dpi=150, layout="constrained")
    axes = figure.subplots()
    x, y = kv_bytes / GIB, states_bytes / GIB
    image = axes.pcolormesh(x, y, rates.T * 100, shading="nearest", cmap="viridis")
    figure.colorbar(image, ax=axes, label="Token hit rate (%)")
    _memory_axis(axes)
    axes.set_yscale("log", base=2)
    memory_sizes(axes.yaxis)
    axes.set(title=title, xlabel="KV memory (log scale)", ylabel="State memory (log scale)")
    _budget_lines(axes, x, y, rates, {size / GIB: most for size, most in bounds.items()})
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    save_png(figure, path)


def _budget_lines(
    axes: Axes, x: FloatArray, y: FloatArray, rates: FloatArray, bounds: Mapping[float, float]
) -> None:
    for total in 2.0 ** np.arange(np.ceil(np.log2(x[0] + y[0])), np.log2(x[-1] + y[-1])):
        part = np.linspace(0.001, 0.999, 400)
        kv, states = total * (1 - part), total * part
        axes.plot(kv, states, color="white", linewidth=0.6, linestyle=":")
        rows = np.searchsorted(x, kv, side="right") - 1
        columns = np.searchsorted(y, states, side="right") - 1
        inside = (rows >= 0) & (columns >= 0)
        if inside.any():
            found = np.where(inside, rates[rows, columns], -1.0)
            best = int(found.argmax())
            axes.plot(kv[best], states[best], "o", color="white", markersize=3.5)
            if total in bounds:
                is_right = kv[best] ** 2 > x[0] * x[-1]
                axes.annotate(
                    f"{100 * found[best]:.1f} of at most {100 * bounds[total]:.1f}",
                    (kv[best], states[best]), xytext=(-5 if is_right else 5, 4),
                    textcoords="offset points", ha="right" if is_right else "left",
                    fontsize=7, color="white",
                )  # fmt: skip


def _memory_axis(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    memory_sizes(axes.xaxis)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("Cache memory, KV and states together (log scale)")
