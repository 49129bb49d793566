"""Time of a call on the GPU: CUDA-graph replays over rotated inputs, median and spread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Call = Callable[[], object]

# Inputs are rotated until they fill this many bytes: several times the L2 of any card at hand.
ROTATION_BYTES = 384 * 2**20
# Of a timed graph: 100 times what launching it takes and more.
_MIN_GRAPH_S, _MOST_ROUNDS = 1e-3, 100
# A graph's first replay also brings it to the card, which only a short one shows.
_SHORT_S = 2e-3


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: median, 20 % and 80 % quantiles of `num_samples` graph replays."""

    median_s: float
    low_s: float
    high_s: float
    num_samples: int

    @property
    def spread(self) -> float:
        """Width of the middle 60 % over the median."""
        return (self.high_s - self.low_s) / self.median_s


def rotations(set_bytes: int) -> int:
    """How many input sets of `set_bytes` push one another out of the cache."""
    return max(1, min(48, -(-ROTATION_BYTES // max(set_bytes, 1))))


def event_s(run: Call) -> float:
    """Seconds of device work that `run` starts, between two events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def summary(samples: Sequence[float], calls: float) -> Timing:
    """Of one call, from seconds of so many at a time."""
    values = torch.tensor(samples, dtype=torch.float64) / calls
    low, median, high = torch.quantile(values, torch.tensor([0.2, 0.5, 0.8]).double()).tolist()
    return Timing(median, low, high, len(samples))


def _graph(calls: Sequence[Call], rounds: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for call in calls:
                call()
    return graph


def capture(calls: Sequence[Call], warm_ups: int = 2) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of all calls in turn, several rounds if one is too short to time, and its length."""
    for _ in range(warm_ups):
        for call in calls:
            call()
    # Rounds by the time of a graph: launches from Python take longer than short kernels, and with
    # too few rounds the launch of the graph itself would count as theirs.
    once = _graph(calls, 1)
    once_s = event_s(once.replay)
    if once_s < _SHORT_S:
        once_s = min(event_s(once.replay) for _ in range(2))
    rounds = rounds_of(once_s)
    return once if rounds == 1 else _graph(calls, rounds), rounds * len(calls)


def rounds_of(once_s: float) -> int:
    """How often a graph of `once_s` runs on end, so that its launch is hardly seen."""
    return max(1, min(_MOST_ROUNDS, round(_MIN_GRAPH_S / max(once_s, 1e-6))))


def time_graph(calls: Sequence[Call], num_samples: int = 15) -> Timing:
    """Time of one call, device work only: no launch gaps, inputs rotated through `calls`."""
    graph, length = capture(calls)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    return summary([event_s(graph.replay) for _ in range(num_samples)], length)


def time_eager(calls: Sequence[Call], num_samples: int = 15) -> Timing:
    """Time of one call launched from Python, gaps between launches included."""
    for _ in range(3):
        for call in calls:
            call()
    torch.cuda.synchronize()
    samples = [event_s(lambda: [call() for call in calls]) for _ in range(num_samples)]
    return summary(samples, len(calls))
