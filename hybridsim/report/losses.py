"""Where the tokens went that an infinite cache would have reused: stacked bars, one a run."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from hybridsim.config import PlotConfig
from hybridsim.errors import UserError
from hybridsim.records import LOSS_REASONS, MissReason
from hybridsim.report.bands import TIMED_NOTE, brackets
from hybridsim.report.curves import split, subtitle
from hybridsim.report.figure import Axis, Figure, Panel, Series, Style
from hybridsim.report.tables import Results
from hybridsim.report.units import Quantity, XAxis, key_label, y_axis

LABELS = {
    MissReason.BELOW_BLOCK: "shared part below one block",
    MissReason.ALIGNMENT: "remainder below the grid",
    MissReason.DRAFTER_DROP: "dropped for the drafter",
    MissReason.FIRST_FORK: "first fork: no state yet",
    MissReason.IN_UNIQUE_TOKENS: "states lie in unique tokens",
    MissReason.NEVER_SAVED: "no states are saved",
    MissReason.STATE_EVICTED: "state evicted, KV still there",
    MissReason.KV_EVICTED: "KV evicted",
}


# One colour a reason in all figures: warm where a state was missing, grey where the KV was.
_COLOR_OF = {
    MissReason.STATE_EVICTED: 1,
    MissReason.FIRST_FORK: 2,
    MissReason.IN_UNIQUE_TOKENS: 3,
    MissReason.NEVER_SAVED: 4,
    MissReason.ALIGNMENT: 5,
    MissReason.BELOW_BLOCK: 6,
    MissReason.KV_EVICTED: 7,
    MissReason.DRAFTER_DROP: 8,
}


def losses(results: Results, plot: PlotConfig) -> Figure:
    """Bars over `x`, one panel for each other choice; what is reused stands at the bottom."""
    if plot.y:
        raise UserError("plots", f"losses draws all reasons; y {list(plot.y)} has no meaning")
    if plot.x is None:
        raise UserError("plots", "losses needs x, the swept key that tells the bars apart")
    order = list(dict.fromkeys(results.summary[plot.x]))
    known = [r for r in LOSS_REASONS if f"lost_tokens_{r}" in results.summary]
    reasons = [r for r in known if results.summary[f"lost_tokens_{r}"].any()]
    highest = 100 * float(results.summary["ceiling_token_hit_rate"].max())
    y = y_axis([Quantity("Share of prompt tokens", "%")], highest)
    panels = [
        _panel(title, rows, plot.x, order, reasons, y) for title, rows in split(results, [plot.x])
    ]
    note = (
        "Reused and lost tokens add up to what an infinite cache would have reused; "
        "refused requests are left out."
    )
    if results.is_timed:
        note += "\n" + TIMED_NOTE
    title = f"Why tokens were not reused, over {key_label(plot.x)}"
    return Figure(f"losses-over-{plot.x}", title, panels, "", subtitle(results), note)


def _panel(
    title: str,
    rows: pd.DataFrame,
    x: str,
    order: list[str],
    reasons: Sequence[MissReason],
    y: Axis,
) -> Panel:
    rows = rows[rows["token_hit_rate"].notna()]
    places = [float(order.index(value)) for value in rows[x]]
    hit = (100 * rows["token_hit_rate"]).tolist()
    bars = [Series("reused (hit)", places, hit, 0, Style.BAR)]
    for reason in reasons:
        share = 100 * rows[f"lost_tokens_{reason}"] / rows["num_prompt_tokens"]
        bars.append(Series(LABELS[reason], places, share.tolist(), _COLOR_OF[reason], Style.BAR))
    ticks = {float(place): str(value) for place, value in enumerate(order)}
    axis = Axis(key_label(x), ticks=ticks)
    named = XAxis(axis, {label: place for place, label in ticks.items()}, is_named=True)
    # A line each: a band would dim the colours behind it.
    bands = [replace(band, low=band.high) for band in brackets(rows, x, named)]
    return Panel(title, axis, y, bars, bands=bands)
