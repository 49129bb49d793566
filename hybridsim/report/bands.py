"""Where the best possible hit rate lies: the bracket of the summary as grey bands."""

import pandas as pd

from hybridsim.report.figure import Band, Scale
from hybridsim.report.units import XAxis

BRACKET = ("feasible_token_hit_rate", "bound_token_hit_rate")
LABEL = "best possible (proven)"
TIMED_NOTE = "Grey: best possible in the batches of the runs drawn; other hits make other batches."
_HALF_NAME = 0.35  # of the distance between two names, which is as wide as a bar
_HALF_DOUBLING = 0.12


def brackets(rows: pd.DataFrame, key: str, x: XAxis) -> list[Band]:
    """One band over a scale, or a short one at each name and where there is one place only.

    Of several memories at one place it is that of the best; what stands beside the scale has none,
    since unlimited memory reaches the ceiling. In %.
    """
    if not set(BRACKET) <= set(rows.columns):
        return []
    known = rows[rows[list(BRACKET)].notna().all(axis=1) & rows[key].notna()]
    best = {
        x.positions[str(value)]: [100 * float(part[name].max()) for name in BRACKET]
        for value, part in known.groupby(key)
        if str(value) not in x.apart
    }
    places = sorted(best)
    if len(places) > 1 and not x.is_named:
        low, high = ([best[place][side] for place in places] for side in (0, 1))
        return [Band(LABEL, places, low, high)]
    return [
        Band(LABEL, _around(place, x), [best[place][0]] * 2, [best[place][1]] * 2)
        for place in places
    ]


def _around(place: float, x: XAxis) -> list[float]:
    """A short stretch of the axis."""
    if x.is_named:
        return [place - _HALF_NAME, place + _HALF_NAME]
    if x.axis.scale == Scale.LINEAR:
        half = abs(place) * 0.02 or _HALF_NAME
        return [place - half, place + half]
    return [place * 2.0**-_HALF_DOUBLING, place * 2.0**_HALF_DOUBLING]
