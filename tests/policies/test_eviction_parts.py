"""What eviction policies stand on: scores, names of prefixes, and what they may know beforehand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench import ask

from hybridsim.models import get_model
from hybridsim.policies.eviction.prefix_name import prefix_name
from hybridsim.policies.eviction.scoring import spread
from hybridsim.request import Request, Spans
from hybridsim.sim.setting import PrefillFlops, setting_for
from tests.plain import tokens_of


def test_spread_is_min_max_and_one_where_all_are_equal():
    assert spread(np.array([1.0, 3.0, 2.0])).tolist() == [0, 1, 0.5]
    assert spread(np.array([2.0, 2.0])).tolist() == [1, 1]
    assert spread(np.array([])).tolist() == []


pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=4)


@given(one=pairs, two=pairs, end=st.integers(1, 20))
def test_a_prefix_name_is_the_prefix(one, two, end):
    requests = [Request("", Spans.of(x), Spans.unknown(0)) for x in (one, two)]
    end = min(end, *(r.num_prompt_tokens for r in requests))

    equal = tokens_of(requests[0].prompt)[:end] == tokens_of(requests[1].prompt)[:end]
    assert (prefix_name(requests[0], end) == prefix_name(requests[1], end)) == equal


def test_a_prefix_name_reaches_into_the_output():
    whole, parts = ask("aab"), ask("a", "ab")
    assert prefix_name(whole, 3) == prefix_name(parts, 3)
    assert prefix_name(whole, 2) != prefix_name(whole, 3)


@pytest.mark.parametrize("name", ["qwen3.5-0.8b", "kimi-linear-48b-a3b", "minimax-text-01"])
def test_fast_prefill_flops_equal_the_models(name):
    model = get_model(name)
    fast = PrefillFlops(model)
    for n, p in ((1, 0), (63, 1), (64, 0), (1000, 4097)):
        assert fast(n, p) == model.prefill_flops(n, p).total


def test_a_setting_takes_its_sizes_from_the_model():
    model = get_model("qwen3.5-0.8b")
    setting = setting_for([ask("a")], model, 3, shared=True)
    assert setting.kv_bytes_per_token == model.kv_bytes_per_token
    assert setting.state_bytes == model.state_bytes
    assert setting.shared
    assert setting.rng.random() == np.random.default_rng(3).random()
