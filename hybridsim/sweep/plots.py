"""Checks before anything runs that each figure asked for can be drawn afterwards."""

from collections.abc import Iterable

from hybridsim import metrics
from hybridsim.build import Built
from hybridsim.config import Experiment, PlotConfig, did_you_mean
from hybridsim.errors import UserError
from hybridsim.records import RequestRecord, StepRecord
from hybridsim.report.distributions import REQUEST_TIMES, STEP_COLUMNS

CEILING = "ceiling_token_hit_rate"


def metric_names(built: Iterable[Built], *, is_timed: bool) -> list[str]:
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
    return [*names, CEILING]


def check_plots(experiment: Experiment, built: Iterable[Built]) -> None:
    """Raises UserError naming `plots.<number>.<key>`, the value and the allowed ones."""
    is_timed = any(run.config.mode == "timed" for run in experiment.runs)
    curve_names = metric_names(built, is_timed=is_timed)
    allowed = {
        "curve": curve_names,
        "cdf": list(REQUEST_TIMES),
        "steps": list(STEP_COLUMNS),
        "losses": [],
    }
    for index, plot in enumerate(experiment.plots or ()):
        place = experiment.source.place(("plots", str(index)))
        _check_kind(plot, place, is_timed)
        for name in plot.y:
            names = allowed[plot.kind]
            near = did_you_mean(name, names)
            text = f"{name!r} cannot be drawn{near}; allowed: {', '.join(names) or 'no y'}"
            if name not in names:
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
