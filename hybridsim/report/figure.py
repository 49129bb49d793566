"""A figure as data: panels, series and axes. It knows no drawing library and no experiment."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hybridsim.drawing import COLORS


class Scale(StrEnum):
    """How an axis is divided."""

    LINEAR = "linear"
    LOG = "log"
    LOG2 = "log2"


class Style(StrEnum):
    """What a series is drawn as."""

    LINE = "line"  # joined points
    FAINT = "faint"  # the same in the background: match behind hit
    POINT = "point"  # points that are not joined, since between names there is nothing
    FAINT_POINT = "faint point"  # the same in the background
    CONTEXT = "context"  # a line that only shows where the others are
    STEP = "step"  # a distribution function or a time series
    BAR = "bar"  # a part of a stack, on those before it


@dataclass(frozen=True, slots=True)
class Axis:
    """`ticks` maps positions to labels; None leaves the ticks to the drawing library."""

    label: str
    scale: Scale = Scale.LINEAR
    ticks: dict[float, str] | None = None
    range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one colour. `color` counts the values of the figure's line key from 0.

    Series of the same label share a legend entry; faint ones are told apart by colour alone.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: int
    style: Style = Style.LINE


@dataclass(frozen=True, slots=True)
class Level:
    """A dashed horizontal line over the whole panel, such as the ceiling."""

    label: str
    y: float


@dataclass(frozen=True, slots=True)
class Band:
    """A grey stretch between two curves, such as where the best possible lies."""

    label: str
    x: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x: Axis
    y: Axis
    series: list[Series]
    levels: list[Level] = field(default_factory=list)
    bands: list[Band] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Figure:
    """`name` is the file's stem, `legend_title` the key whose values are the colours,
    `subtitle` what all runs have in common.

    `num_columns` of panels; None leaves it to their number. `panel_inches`: width and height.
    `shares_axes`: all panels of a column have one x axis, those of a row one y axis.
    `note`: what a reader must know to believe the figure; shown below it.
    """

    name: str
    title: str
    panels: list[Panel]
    legend_title: str = ""
    subtitle: str = ""
    note: str = ""
    num_columns: int | None = None
    panel_inches: tuple[float, float] = (5.4, 3.7)
    shares_axes: bool = False


# Beyond the colours the markers and dashes go on to differ.
BAR_COLORS = (*COLORS, "#F0E442")  # an area of yellow can be seen
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
PLOTLY_MARKERS = (
    "circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x",
    "triangle-left", "triangle-right",
)  # fmt: skip
