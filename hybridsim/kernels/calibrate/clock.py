"""Time of a call as `bench.timing` takes it, in bursts that leave the card its highest clock."""

import time
from collections.abc import Sequence

from hybridsim.kernels.bench.timing import Call, Timing, capture, event_s, summary

# After some 80 ms of nothing but matrix products an H200 is at its power limit and lowers its
# clock: by 4 to 9 % for these alone, by 0 to 6 % for whole steps, which draw less. Parts and steps
# are only comparable before that. A tenth of a second of rest is enough to begin anew.
_BURST_S, _REST_S = 40e-3, 0.1
_LONG_S, _ENDLESS_S = 10e-3, 30e-3
# Of a run without rest.
_SUSTAINED_S = 0.5


def time_calls(calls: Sequence[Call], per_call: float = 1.0) -> Timing:
    """Seconds of one call in a CUDA graph that runs all of `calls` in turn, times `per_call`.

    Median with 20 and 80 % quantiles of as many replays as take 40 ms, 7 at most and 3 at least.
    Graphs of more than 10 ms come after a rest, but of more than 30 ms, which are no burst anyway.
    """
    graph, length = capture(calls, warm_ups=1)
    replay_s = event_s(graph.replay)
    if _LONG_S < replay_s < _ENDLESS_S:
        time.sleep(_REST_S)
    count = max(3, min(7, round(_BURST_S / replay_s)))
    return summary([event_s(graph.replay) for _ in range(count)], length / per_call)


def time_sustained(call: Call) -> float:
    """Seconds of one call, run for half a second on end: median of the second half."""
    graph, length = capture([call], warm_ups=1)
    samples = [event_s(graph.replay)]
    while sum(samples) < _SUSTAINED_S:
        samples.append(event_s(graph.replay))
    return summary(samples[len(samples) // 2 :], length).median_s
