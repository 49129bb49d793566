"""The bar of a sweep: runs and requests done, requests a second, time left."""

from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from hybridsim.sweep.events import Advanced, Event, Failed


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(
            "- req/s" if speed is None else f"{speed:,.0f} req/s", style="progress.data.speed"
        )


class SweepProgress:
    """Shows events. On a terminal a bar; elsewhere one line a run.

    `sizes` are the requests of each run by its index; a run's size is what the bar moves by.
    """

    def __init__(self, sizes: dict[int, int], labels: dict[int, str], console: Console) -> None:
        self._sizes, self._labels, self._console = sizes, labels, console
        self._advanced = dict.fromkeys(sizes, 0)
        self._num_ended = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(self._title(), total=sum(sizes.values()))

    def __enter__(self) -> "SweepProgress":
        self._bar.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        """Move the bar; a failed run's requests count as done, so that the bar still ends full."""
        if isinstance(event, Advanced):
            self._advance(event.index, event.num_requests)
            return
        self._advance(event.index, self._sizes[event.index] - self._advanced[event.index])
        self._num_ended += 1
        self._bar.update(self._task, description=self._title())
        if isinstance(event, Failed):
            label = self._labels[event.index]
            failed = f"failed: {label}: {event.reason}"
            self._console.print(failed, style="red", markup=False, soft_wrap=True)
        elif not self._console.is_terminal:
            label = self._labels[event.index]
            ended = f"{self._title()}: {label}"
            self._console.print(ended, markup=False, highlight=False, soft_wrap=True)

    def _advance(self, index: int, num_requests: int) -> None:
        step = min(num_requests, self._sizes[index] - self._advanced[index])
        self._advanced[index] += step
        self._bar.advance(self._task, step)

    def _title(self) -> str:
        return f"run {self._num_ended}/{len(self._sizes)}"
