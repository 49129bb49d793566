"""Time of a call as `bench.timing` takes it, but with fewer repetitions of long calls."""

from collections.abc import Sequence

import torch

from hybridsim.kernels.bench.timing import Call, Timing

_MIN_GRAPH_S, _LONG_S = 300e-6, 10e-3


def _event_s(run: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3


def time_calls(calls: Sequence[Call], per_call: float = 1.0) -> Timing:
    """Seconds of one call in a CUDA graph that runs all of `calls` in turn, times `per_call`.

    Median with 20 and 80 % quantiles of 7 replays after 3, or of 3 after 1 where a replay takes
    more than 10 ms: a clock that runs so long needs no more.
    """

    def all_calls() -> None:
        for call in calls:
            call()

    all_calls()  # compiles
    once_s = _event_s(all_calls)
    rounds = max(1, min(20, int(_MIN_GRAPH_S / once_s)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            all_calls()
    is_long = _event_s(graph.replay) > _LONG_S
    for _ in range(0 if is_long else 2):
        graph.replay()
    samples = [_event_s(graph.replay) for _ in range(3 if is_long else 7)]
    values = torch.tensor(samples, dtype=torch.float64) * per_call / (rounds * len(calls))
    low, median, high = torch.quantile(values, torch.tensor([0.2, 0.5, 0.8]).double()).tolist()
    return Timing(median, low, high, len(samples))
