"""Sampled curves: exact at rate 1, and within their error bar on a real trace."""

from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from hybridsim.analysis import shards
from hybridsim.analysis.blocks import block_curve
from hybridsim.analysis.shards import read_samples
from hybridsim.errors import UserError
from hybridsim.traces import read_trace
from tests.analysis.test_curve import BLOCK_POINTS, block_traces


@given(block_traces())
def test_a_sample_of_everything_is_the_exact_curve(requests):
    sizes = list(range(1, 25))
    [sampled] = read_samples(requests, 1.0, [3]).curves
    assert sampled.hit_tokens(sizes).tolist() == block_curve(requests).hit_tokens(sizes).tolist()


def test_the_truth_lies_within_the_bar_on_the_conversation_trace(shared_dir):
    """1 block in 16, 8 seeds; the points are those on which two other programs agree."""
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake").requests
    samples = read_samples(requests, 1 / 16, range(8), num_warmup=len(requests) // 2)
    found = samples.estimate(list(BLOCK_POINTS))
    truth = np.array(list(BLOCK_POINTS.values()))
    assert (np.abs(found.rate - truth) <= found.half_width).all()
    assert found.half_width.max() < 0.01


def test_a_bar_gets_narrower_with_the_rate(shared_dir):
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake", first=4000).requests
    coarse = read_samples(requests, 1 / 64, range(8)).estimate([8192])
    fine = read_samples(requests, 1 / 4, range(8)).estimate([8192])
    assert fine.half_width[0] < coarse.half_width[0]


@given(block_traces(), st.integers(0, 5), st.sampled_from([0.3, 1.0]))
def test_all_seeds_from_one_reading_are_what_each_gives_alone(requests, num_warmup, rate):
    with mock.patch.object(shards, "_CHUNK", 3):  # chunks must not matter
        samples = read_samples(iter(requests), rate, range(3), num_warmup=num_warmup)
    assert samples.num_blocks == sum(len(request.prompt) for request in requests)
    for seed, curve in enumerate(samples.curves):
        [alone] = read_samples(requests, rate, [seed], num_warmup=num_warmup).curves
        assert curve.hit_tokens(range(25)).tolist() == alone.hit_tokens(range(25)).tolist()
        assert curve.num_prompt_tokens == alone.num_prompt_tokens


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.5])
def test_impossible_rates_are_refused(rate):
    with pytest.raises(UserError, match="> 0 and <= 1"):
        read_samples([], rate, [0])


@pytest.mark.parametrize("num_seeds", [1, 17])
def test_no_error_bar_from_too_few_or_too_many_seeds(num_seeds):
    samples = read_samples([], 0.5, range(num_seeds))
    with pytest.raises(ValueError, match="2 to 16"):
        samples.estimate([1])
