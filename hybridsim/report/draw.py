"""From a result folder to its figures and report. Reads tables, runs nothing."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from hybridsim.config import PlotConfig
from hybridsim.files import make_folder, written_whole
from hybridsim.report.curves import curve
from hybridsim.report.distributions import cdf, steps
from hybridsim.report.figure import Figure
from hybridsim.report.losses import losses
from hybridsim.report.multiples import is_crowded, small_multiples
from hybridsim.report.page import write_page
from hybridsim.report.png import draw_png
from hybridsim.report.tables import Results, read_results

KINDS: Mapping[str, Callable[[Results, PlotConfig], Figure]] = {
    "curve": curve,
    "cdf": cdf,
    "steps": steps,
    "losses": losses,
}


def draw_report(folder: Path) -> list[Path]:
    """Write `plots/*.png` and `report.html` of a result folder; returns the files written."""
    # matplotlib tells of its font cache, which is no news to our user
    logging.getLogger("matplotlib.font_manager").setLevel(logging.WARNING)
    results = read_results(folder)
    plots = results.experiment.plots
    figures = [KINDS[plot.kind](results, plot) for plot in default_plots(results, plots)]
    plots_dir = folder / "plots"
    make_folder(plots_dir, str(plots_dir))
    written = []
    for figure in figures:
        path = plots_dir / f"{figure.name}.png"
        with written_whole(path) as temporary:
            draw_png(small_multiples(figure) if is_crowded(figure) else figure, temporary)
        written.append(path)
    for stale in set(plots_dir.glob("[!.]*.png")) - set(written):  # not what others write now
        stale.unlink(missing_ok=True)
    page = folder / "report.html"
    with written_whole(page) as temporary:
        write_page(temporary, results, figures)
    return [*written, page]


def default_plots(results: Results, plots: tuple[PlotConfig, ...] | None) -> list[PlotConfig]:
    """The plots asked for, or else those that fit the sweep."""
    if plots is not None:
        return list(plots)
    axes = results.axes
    chosen = []
    if axes:
        x = "cache.memory" if "cache.memory" in axes else axes[0]
        line = next((key for key in axes if key != x), None)
        chosen.append(PlotConfig(x=x, y=("token_hit_rate",), line=line))
        chosen.append(PlotConfig(x=x, y=("token_match_rate", "token_hit_rate"), line=line))
        chosen.append(PlotConfig(kind="losses", x=x))
    if results.is_timed:
        line = next((key for key in axes if key != "cache.memory"), None)
        chosen.append(PlotConfig(kind="cdf", y=("ttft_s",), line=line))
        chosen.append(PlotConfig(kind="steps", line=line))
    return chosen
