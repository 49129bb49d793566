"""Small multiples: a crowded figure becomes a panel for each line, the other lines grey behind it.

It turns one figure into another and draws nothing.
"""

from dataclasses import replace

from hybridsim.drawing import COLORS
from hybridsim.report.figure import Figure, Panel, Style

MOST_LINES = len(COLORS)  # beyond it colours repeat, and no eye follows one line through the others
_PANEL_INCHES = (2.5, 1.9)
_NUM_COLUMNS = 5


def is_crowded(figure: Figure) -> bool:
    """Whether some panel has more lines than can be told apart. Bars are parts, not lines."""
    return any(len(_labels(panel)) > MOST_LINES for panel in figure.panels)


def small_multiples(figure: Figure) -> Figure:
    """A panel a line, in the lines' order, all on the axes of the panel that they come from.

    With several panels each is a column. What belongs to a line (its match behind its hit) goes
    with it; bands and levels stand in every panel.
    """
    labels = list(dict.fromkeys(label for panel in figure.panels for label in _labels(panel)))
    headings = _headings(figure)
    panels = [
        _highlighted(panel, label, heading if label == labels[0] else "")
        for label in labels
        for panel, heading in zip(figure.panels, headings, strict=True)
    ]
    num_columns = len(figure.panels) if len(figure.panels) > 1 else _NUM_COLUMNS
    numbers = "Number at the right of a title: the line's last value."
    has_lines = any(one.style == Style.LINE for panel in panels for one in panel.series)
    note = "\n".join(filter(None, [figure.note, numbers if has_lines else ""]))
    return replace(
        figure,
        note=note,
        panels=panels,
        legend_title="",
        num_columns=num_columns,
        panel_inches=_PANEL_INCHES,
        shares_axes=True,
    )


def _labels(panel: Panel) -> list[str]:
    lines = (series for series in panel.series if series.style in (Style.LINE, Style.STEP))
    return list(dict.fromkeys(series.label for series in lines))


def _headings(figure: Figure) -> list[str]:
    """What stands above the columns: a panel's own title, and its y axis where they differ."""
    is_mixed = len({panel.y.label for panel in figure.panels}) > 1
    parts = [[panel.y.label if is_mixed else "", panel.title] for panel in figure.panels]
    return ["\n".join(filter(None, part)) for part in parts]


def _highlighted(panel: Panel, label: str, heading: str) -> Panel:
    colors = {series.color for series in panel.series if series.label == label}
    own, others = [], []
    for series in panel.series:
        if series.color in colors:
            own.append(replace(series, color=0))
        elif series.style != Style.FAINT:
            others.append(replace(series, label="the others", style=Style.CONTEXT))
    title = f"{heading}\n{label}" if heading else label
    return replace(panel, title=title, series=[*others, *own])
