"""The clocks of benchmark and calibration, on a GPU that is only arithmetic."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hybridsim.kernels.bench.timing import rounds_of, time_graph  # noqa: E402
from hybridsim.kernels.calibrate.clock import time_calls, time_sustained  # noqa: E402


class Gpu:
    """Takes `launch_s` for every graph and `call_s` for every call; `now_s` is its clock."""

    def __init__(self, monkeypatch, call_s, launch_s=0.0):
        self.now_s, self.call_s, self.launch_s = 0.0, call_s, launch_s
        self.captured, self.replays = None, []
        cuda = {"Event": self.event, "CUDAGraph": self.new_graph, "graph": self.capture}
        for name, value in cuda.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def call(self):
        if self.captured is None:
            self.now_s += self.call_s
        else:
            self.captured.calls += 1

    def event(self, enable_timing):
        event = SimpleNamespace(at_s=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at_s", self.now_s)
        event.elapsed_time = lambda end: (end.at_s - event.at_s) * 1e3
        return event

    def new_graph(self):
        graph = SimpleNamespace(calls=0)
        graph.replay = lambda: self.replay(graph)
        return graph

    @contextmanager
    def capture(self, graph):
        self.captured = graph
        yield
        self.captured = None

    def replay(self, graph):
        self.replays.append(graph.calls)
        self.now_s += self.launch_s + graph.calls * self.call_s


@given(st.floats(1e-7, 1.0))
def test_a_graph_runs_about_a_millisecond_and_never_more_than_100_rounds(once_s):
    rounds = rounds_of(once_s)
    assert 1 <= rounds <= 100
    if 1e-5 <= once_s <= 1e-3:
        assert 2e-3 / 3 <= rounds * once_s <= 1.5e-3  # rounded to the nearest whole round
    assert once_s < 1e-3 or rounds == 1


@pytest.mark.parametrize("clock", [time_graph, time_calls])
@pytest.mark.parametrize("call_s", [10e-6, 300e-6, 20e-3])
def test_both_clocks_tell_a_call_s_time_with_little_of_the_launch(monkeypatch, clock, call_s):
    """Two calls and a launch of 5 us: 25, 605 us and 40 ms, so 40, 2 and 1 rounds in a graph.

    The launch is at most 5 of 40 * 20 us.
    """
    gpu = Gpu(monkeypatch, call_s, launch_s=5e-6)
    timing = clock([gpu.call, gpu.call])
    assert call_s < timing.median_s < call_s * 1.007
    assert timing.high_s - timing.low_s < 1e-9


@pytest.mark.parametrize(
    ("call_s", "looks", "samples", "rests"),
    [(1e-3, 3, 7, 0), (8e-3, 1, 5, 0), (20e-3, 1, 3, 1), (50e-3, 1, 3, 0)],
)
def test_calibration_measures_in_bursts(monkeypatch, call_s, looks, samples, rests):
    """A look or three for the rounds, one for the samples: as many as 40 ms hold, from 3 to 7."""
    gpu, slept = Gpu(monkeypatch, call_s), []
    monkeypatch.setattr("time.sleep", slept.append)
    timing = time_calls([gpu.call], per_call=2.0)
    assert timing.num_samples == samples
    assert len(gpu.replays) == looks + 1 + samples
    assert slept == [0.1] * rests
    assert timing.median_s == pytest.approx(2 * call_s)


def test_sustained_time_is_that_of_the_second_half(monkeypatch):
    """A card that takes 10 ms a call for the first quarter second and 12 ms from then on."""
    gpu = Gpu(monkeypatch, 10e-3)

    def replay(graph):
        gpu.call_s = 10e-3 if gpu.now_s < 0.25 else 12e-3
        gpu.now_s += gpu.call_s * graph.calls

    monkeypatch.setattr(gpu, "replay", replay)
    assert time_sustained(gpu.call) == pytest.approx(12e-3)
    assert 0.5 <= gpu.now_s < 0.55
