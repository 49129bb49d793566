"""What all figures share: colours, and how they become files. It knows no axes and no data."""

from pathlib import Path
from typing import TYPE_CHECKING

from hybridsim.files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart by people with any common colour blindness; without its
# yellow, which is lost on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
GREY = "#5f6368"  # of what is no data: bounds, notes, ceilings
MARK = COLORS[1]  # of the one point that a figure is about


def save_png(figure: "Figure", path: Path) -> None:
    """The same bytes for the same figure, whole or not at all. Raises WriteError."""
    with written_whole(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": None})
