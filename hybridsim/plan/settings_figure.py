"""The planner's figure of settings: a dot for each, the best on top."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from hybridsim.drawing import COLORS, GREY, MARK, save_png


def draw_settings(
    path: Path, title: str, rows: Mapping[str, float], bound: float | None = None
) -> None:
    """A dot for each setting that was replayed, the best on top. rows: label -> hit rate.

    bound: what none can pass in this memory, dashed.
    """
    ordered = sorted(rows.items(), key=lambda row: row[1])
    figure = Figure(figsize=(8.6, 1.5 + 0.27 * len(ordered)), dpi=150, layout="constrained")
    axes = figure.subplots()
    values = [100 * rate for _, rate in ordered]
    axes.hlines(range(len(ordered)), 0, values, color="#d0d4d9", linewidth=1.6)
    axes.plot(values, range(len(ordered)), "o", color=COLORS[0], markersize=6)
    axes.plot(values[-1:], [len(ordered) - 1], "*", color=MARK, markersize=15)
    for row, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (value, row), xytext=(9, -3), textcoords="offset points",
                      fontsize=8, color=GREY)  # fmt: skip
    if bound is not None:
        axes.axvline(100 * bound, color=GREY, linestyle=(0, (6, 3)), linewidth=1.2)
        axes.set_title(
            f"dashed: nothing hits more (proven), {100 * bound:.2f} %", fontsize=8.5, loc="right",
            color=GREY,
        )  # fmt: skip
    axes.set_yticks(range(len(ordered)), [label for label, _ in ordered], fontsize=8.5)
    axes.set_xlabel("Token hit rate (%)")
    axes.set_xlim(0, max([*values, 100 * (bound or 0), 1e-9]) * 1.12)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.suptitle(title, fontsize=11.5, fontweight="bold", x=0.01, ha="left")
    save_png(figure, path)
