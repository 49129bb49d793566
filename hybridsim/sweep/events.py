"""What an executor tells while it works, whatever machine the run is on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from hybridsim.files import WriteError


@dataclass(frozen=True, slots=True)
class Advanced:
    """`num_requests` more requests of the run are done."""

    index: int
    num_requests: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is done and written."""

    index: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The run raised, or its process died; nothing of it was written.

    `stops` is given where the others would fare no better: its results could not be written.
    """

    index: int
    reason: str
    traceback: str
    stops: WriteError | None = None


Event = Advanced | Finished | Failed
# Does the run of that index and writes it; calls back with the number of requests just done.
Work = Callable[[int, Callable[[int], None]], None]


OnEvent = Callable[[Event], None]


class Executor(Protocol):
    """Does the runs of the given indices, in any order and place."""

    def __call__(self, work: Work, indices: Sequence[int], on_event: OnEvent) -> None:
        """Returns when each index is finished or failed, and has told so.

        An exception that passes through (Ctrl-C) stops the runs in flight first.
        """
        ...
