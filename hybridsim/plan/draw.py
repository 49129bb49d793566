"""The planner's figure of a split: the surface with its optimum, and the rate along the split."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from hybridsim.analysis.planner import GIB, SplitRules, hits_by_slots
from hybridsim.analysis.steps import FloatArray
from hybridsim.drawing import COLORS, GREY, MARK, save_png
from hybridsim.plan.bench import Trial
from hybridsim.plan.result import MemoryPlan
from hybridsim.request import Int64Array
from hybridsim.ticks import memory_sizes
from hybridsim.units import format_bytes

_CELLS = 160
_MOST_LINES = 9


@dataclass(frozen=True, slots=True)
class Heat:
    """Rates `[num_kv_sizes, num_slot_counts]`, and what gave them."""

    kv_bytes: Int64Array
    state_slots: Int64Array
    rates: FloatArray
    source: str


def sizes_around(
    plans: Sequence[MemoryPlan], rules: SplitRules, count: int
) -> tuple[Int64Array, Int64Array]:
    """KV bytes and slot counts, rising, in which every split of the plans' memories has a place."""
    sizes = [plan.memory_bytes for plan in plans]
    kv = _grid(min(sizes) / 16, max(sizes) * 2, rules.page_bytes, count)
    states = _grid(min(sizes) / 64, max(sizes) * 2, rules.state_bytes, count)
    return kv, states // rules.state_bytes


def one_pass_heat(plans: Sequence[MemoryPlan], rules: SplitRules) -> Heat:
    """The surface of the first plan's one pass."""
    one_pass = plans[0].one_pass
    assert one_pass is not None
    kv, slots = sizes_around(plans, rules, _CELLS)
    rates = one_pass.surface.token_hit_rate(kv, slots)
    source = f"Colour: one pass, {one_pass.label}, LRU"
    if not one_pass.is_exact:
        source += " (a relative: the plan's own rules differ)"
    return Heat(kv, slots, rates, source)


def draw_split_plans(
    path: Path,
    title: str,
    plans: Sequence[MemoryPlan],
    rules: SplitRules,
    trials: Sequence[Trial],
    heat: Heat,
) -> None:
    """Left the rate over both pools with the plans on it, right the rate along their splits.

    Lines on the right are one pass; dots are replays with the engine's own cache.
    """
    figure = Figure(figsize=(12.6, 5.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
    figure.suptitle(title, fontsize=12.5, fontweight="bold", x=0.01, ha="left")
    _surface(figure, left, plans, heat, rules)
    _along_splits(right, plans, rules, trials)
    save_png(figure, path)


def _surface(
    figure: Figure, axes: Axes, plans: Sequence[MemoryPlan], heat: Heat, rules: SplitRules
) -> None:
    rates = 100 * np.nan_to_num(heat.rates)
    x, y = heat.kv_bytes / GIB, heat.state_slots * rules.state_bytes / GIB
    # Each cell holds from its lower left corner on, so corners are where values change.
    mesh = axes.pcolormesh(
        _corners(x), _corners(y), rates.T, cmap="viridis", norm=Normalize(0, rates.max() or 1)
    )
    bar = figure.colorbar(mesh, ax=axes, pad=0.015, aspect=32)
    bar.set_label("Token hit rate (%)")
    bar.outline.set_visible(False)
    _contours(axes, x, y, rates)
    _memory_lines(axes, x, y, plans)
    _optima(axes, plans, rules, float(np.sqrt(x[0] * x[-1])))
    _log_axes(axes, x, y)
    axes.set_xlabel("KV memory (log scale)")
    axes.set_ylabel("State memory (log scale)")
    axes.set_title(heat.source, fontsize=10, loc="left", color=GREY)
    axes.legend(loc="lower left", fontsize=8, framealpha=0.9)


def _contours(axes: Axes, x: FloatArray, y: FloatArray, rates: FloatArray) -> None:
    levels = [level for level in _round_levels(float(rates.max())) if level < rates.max()]
    if len(levels) and len(x) > 1 and len(y) > 1:
        lines = axes.contour(x, y, rates.T, levels=levels, colors="white", linewidths=0.7)
        axes.clabel(lines, fmt="%g %%", fontsize=7)


def _memory_lines(axes: Axes, x: FloatArray, y: FloatArray, plans: Sequence[MemoryPlan]) -> None:
    """Dotted: splits of one memory. Those that were asked for are labelled and stronger."""
    part = 1 / (1 + np.exp(-np.linspace(-9, 9, 500)))
    asked = {plan.memory_bytes / GIB for plan in plans}
    powers = 2.0 ** np.arange(np.floor(np.log2(x[0])), np.ceil(np.log2(x[-1])) + 1)
    for total in [*powers[-_MOST_LINES:], *asked]:
        strong = total in asked
        style: dict[str, Any] = {"linestyle": (0, (1, 2)), "linewidth": 0.6, "alpha": 0.6}
        if strong:
            style = {"linestyle": (0, (4, 2)), "linewidth": 1.3, "alpha": 0.95}
        axes.plot(total * (1 - part), total * part, color="white", **style)


def _optima(axes: Axes, plans: Sequence[MemoryPlan], rules: SplitRules, middle_gib: float) -> None:
    """Stars with their rates, which are written towards the middle of the KV axis."""
    for index, plan in enumerate(plans):
        assert plan.one_pass is not None
        pools = plan.one_pass.pools
        at = (pools.kv_bytes / GIB, pools.state_slots * rules.state_bytes / GIB)
        axes.plot(
            *at, "*", color=MARK, markeredgecolor="white", markersize=15, zorder=5,
            label="planned split (of the dashed memory)" if index == 0 else None,
        )  # fmt: skip
        most = "" if plan.bound is None else f" of at most {100 * plan.bound:.2f} %"
        axes.annotate(
            f"{format_bytes(plan.memory_bytes)}: {100 * plan.best.token_hit_rate:.2f} %{most}",
            at, xytext=(9, 7) if at[0] < middle_gib else (-9, 7), textcoords="offset points",
            ha="left" if at[0] < middle_gib else "right", fontsize=8.5, color="white",
            fontweight="bold", zorder=6,
            bbox={"boxstyle": "round,pad=0.2", "fc": "#00000099", "ec": "none"},
        )  # fmt: skip


def _along_splits(
    axes: Axes, plans: Sequence[MemoryPlan], rules: SplitRules, trials: Sequence[Trial]
) -> None:
    for index, plan in enumerate(plans):
        color = COLORS[index % len(COLORS)]
        assert plan.one_pass is not None
        surface = plan.one_pass.surface
        hits = hits_by_slots(surface, plan.memory_bytes, rules.state_bytes)
        share = np.arange(len(hits)) * rules.state_bytes / plan.memory_bytes
        rates = 100 * hits / max(surface.num_prompt_tokens, 1)
        size = format_bytes(plan.memory_bytes)
        axes.plot(
            share,
            rates,
            color=color,
            linewidth=1.6,
            label=f"{size}, one pass ({plan.one_pass.label})",
        )
        dots = [_dot(trial, plan, rules) for trial in trials if _is_of(trial, plan)]
        axes.plot(
            [x for x, _ in dots], [y for _, y in dots], "o", color=color, markersize=4.5,
            markeredgecolor="white", alpha=0.9, linestyle="none", label=f"{size}, replayed",
        )  # fmt: skip
        if plan.bound is not None:
            axes.axhline(
                100 * plan.bound, color=color, linestyle=(0, (6, 3)), linewidth=1.2,
                label=f"{size}, nothing hits more (proven)",
            )  # fmt: skip
        axes.plot(*_dot(plan.best, plan, rules), "*", color=MARK, markersize=14, zorder=5,
                  markeredgecolor="white")  # fmt: skip
    axes.set(xlabel="Share of memory for states", ylabel="Token hit rate (%)", xlim=(0, 1))
    axes.set_ylim(bottom=0)
    axes.set_title(
        "Dots: the engine's own cache; star: the plan", fontsize=10, loc="left", color=GREY
    )
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _is_of(trial: Trial, plan: MemoryPlan) -> bool:
    """Whether it is a replay of the plan at another split."""
    split = ("cache.state_fraction", "engine.max_mamba_cache_size")
    mine = {k: v for k, v in trial.settings.items() if k not in split}
    return mine == {k: v for k, v in plan.best.settings.items() if k not in split}


def _dot(trial: Trial, plan: MemoryPlan, rules: SplitRules) -> tuple[float, float]:
    slots = trial.capacity.state_slots or 0
    return slots * rules.state_bytes / plan.memory_bytes, 100 * trial.token_hit_rate


def _grid(low: float, high: float, unit: int, count: int) -> Int64Array:
    sizes = np.geomspace(max(low, unit), max(high, 4 * unit), count)
    return np.unique((sizes // unit).astype(np.int64)) * unit


def _corners(centres: FloatArray) -> FloatArray:
    if len(centres) == 1:
        return np.array([centres[0], 2 * centres[0]])
    return np.append(centres, centres[-1] ** 2 / centres[-2])


def _round_levels(top: float) -> FloatArray:
    step = next((s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10) if top / s <= 9), 20)
    return np.arange(step, top, step)


def _log_axes(axes: Axes, x: FloatArray, y: FloatArray) -> None:
    for axis, set_scale, set_limits, values in (
        (axes.xaxis, axes.set_xscale, axes.set_xlim, x),
        (axes.yaxis, axes.set_yscale, axes.set_ylim, y),
    ):
        set_scale("log", base=2)
        set_limits(values[0], values[-1])
        memory_sizes(axis)
