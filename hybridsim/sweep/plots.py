"""Checks before anything runs that each figure asked for can be drawn afterwards."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hybridsim import metrics
from hybridsim.build import Built
from hybridsim.config import Experiment, PlotConfig, check_axes
from hybridsim.errors import UserError, did_you_mean
from hybridsim.records import RequestRecord, StepRecord
from hybridsim.report.distributions import REQUEST_TIMES, STEP_COLUMNS

CEILING = "ceiling_token_hit_rate"
BOUND_NAMES = ("feasible_token_hit_rate", "bound_token_hit_rate", "regret")


def metric_names(built: Iterable[Built], *, is_timed: bool, is_bound: bool) -> list[str]:
    """Columns that the summary will have, found by summarising one made-up request."""
    record = RequestRecord("", None, 1, 2)
    steps = []
    if is_timed:
        record = RequestRecord(
            "", None, 1, 2, arrival_s=0.0, scheduled_s=0.0, first_token_s=0.0, finished_s=1.0
        )
        steps = [StepRecord(0.0, 1.0, 1, 1, 0, 1, 0, 0, 0, 0)]
    names = dict.fromkeys(metrics.summarise([record], steps))
    for each in built:
        names |= dict.fromkeys(each.usage())
    return [*names, CEILING, *(BOUND_NAMES if is_bound else ())]


def with_fitting_plots(
    experiment: Experiment, built: Iterable[Built]
) -> tuple[Experiment, list[str]]:
    """The experiment with the figures that its runs can fill, and what was left out and why.

    Figures are left out only where an override took their sense. A figure that never had any is a
    UserError naming `plots.<number>.<key>`, the value and the allowed ones.
    """
    is_timed = any(run.config.mode == "timed" for run in experiment.runs)
    columns = _columns(experiment, built, is_timed)
    kept: list[PlotConfig] = []
    notes: list[str] = []
    for index, plot in enumerate(experiment.plots or ()):
        plot = _with_lines_left(plot, experiment)
        try:
            check_axes(plot, index, experiment.axes, experiment.source)
            _check_plot(plot, experiment.source.place(("plots", str(index))), columns, is_timed)
        except UserError as error:
            if not experiment.source.may_drop_plots:
                raise
            why = error.message.partition("; allowed: ")[0]
            notes.append(f"figure {index + 1} of the file is left out: {why}")
        else:
            kept.append(plot)
    return _with_plots(experiment, kept), notes


def _columns(
    experiment: Experiment, built: Iterable[Built], is_timed: bool
) -> dict[str, list[str]]:
    """What can be drawn in each kind of figure."""
    is_bound = any(run.config.bound for run in experiment.runs)
    return {
        "curve": metric_names(built, is_timed=is_timed, is_bound=is_bound),
        "cdf": list(REQUEST_TIMES),
        "steps": list(STEP_COLUMNS),
        "losses": [],
    }


def _with_lines_left(plot: PlotConfig, experiment: Experiment) -> PlotConfig:
    """One line in place of one for each value of a key that an override took out of the sweep."""
    if experiment.source.may_drop_plots and plot.line not in experiment.axes:
        return plot.model_copy(update={"line": None})
    return plot


def _with_plots(experiment: Experiment, plots: list[PlotConfig]) -> Experiment:
    """The experiment with other figures, in its file too; without any, those that fit the sweep."""
    if experiment.plots is None or tuple(plots) == experiment.plots:
        return experiment
    data = {key: value for key, value in experiment.source.data.items() if key != "plots"}
    if plots:
        data["plots"] = [plot.model_dump(mode="json", exclude_defaults=True) for plot in plots]
    source = replace(experiment.source, data=data)
    return replace(experiment, plots=tuple(plots) or None, source=source)


def _check_plot(
    plot: PlotConfig, place: str, columns: Mapping[str, list[str]], is_timed: bool
) -> None:
    _check_kind(plot, place, is_timed)
    names = columns[plot.kind]
    for name in plot.y:
        if name not in names:
            near = did_you_mean(name, names)
            text = f"{name!r} cannot be drawn{near}; allowed: {', '.join(names) or 'no y'}"
            raise UserError(f"{place}.y", text)


def _check_kind(plot: PlotConfig, place: str, is_timed: bool) -> None:
    if plot.kind in ("curve", "losses"):
        if plot.x is None:
            raise UserError(place, f"a figure of kind {plot.kind} needs x; allowed: a swept key")
        return
    if not is_timed:
        raise UserError(
            f"{place}.kind",
            f"{plot.kind!r} needs times; allowed: curve, losses, or mode: timed",
        )
    if plot.x is not None:
        raise UserError(f"{place}.x", f"{plot.x!r} has no meaning in a {plot.kind}; allowed: no x")
