"""SGLang's flags: they must give back the pools that were planned, by the server's own formula."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.sizing import SizingInputs, size_pools
from hybridsim.errors import UserError
from hybridsim.plan.flags import sglang_flags
from hybridsim.plan.sglang import AXES

GIB = 2**30
OPTIONS = st.sampled_from(
    [SGLangOptions(), SGLangOptions(strategy="no_buffer"), SGLangOptions(page_size=64)]
)


@settings(max_examples=300)
@given(
    OPTIONS,
    st.integers(GIB, 100 * GIB),
    st.integers(4_000, 200_000),
    st.integers(2**20, 2**27),
    st.floats(0.001, 0.97),
)
def test_both_flags_give_the_planned_pools(options, memory, kv_bytes, state_bytes, share):
    slots = int(memory * share) // state_bytes
    inputs = SizingInputs(memory, kv_bytes, state_bytes)
    try:
        planned = size_pools(options, replace(inputs, max_states=max(slots, 1)))
    except UserError:
        assume(False)
    flags = sglang_flags(options, inputs, planned.state_slots)
    assert flags.max_mamba_cache_size == planned.state_slots
    by_ratio = size_pools(options, replace(inputs, ratio=flags.mamba_full_memory_ratio))
    assert (by_ratio.state_slots, by_ratio.kv_tokens) == (planned.state_slots, planned.kv_tokens)
    # The server keeps one more slot to pad with; all that is left is KV in whole pages.
    left = memory - (planned.state_slots + 1) * state_bytes
    assert by_ratio.kv_tokens == pytest.approx(left // kv_bytes, abs=options.page_size)


def test_the_default_ratio_comes_back_by_hand():
    # 10 GiB at 0.9: states get 10 * 0.9 / 1.9 = 4.7368 GiB; slots of 0.1 GiB: 47, less one.
    inputs = SizingInputs(10 * GIB, 10_000, GIB // 10)
    assert size_pools(SGLangOptions(), inputs).state_slots == 46
    flags = sglang_flags(SGLangOptions(), inputs, 46)
    # 47 slots of 100 give 4.7 / 5.3 = 0.8868; 48 give 0.9231: two digits are enough.
    assert flags.mamba_full_memory_ratio == 0.9


def test_drafts_are_refused():
    inputs = SizingInputs(GIB, 10_000, 2**20, max_running=4, num_draft_tokens=2)
    with pytest.raises(UserError, match="num_draft_tokens"):
        sglang_flags(SGLangOptions(), inputs, 10)


def test_plans_try_only_evictions_that_the_server_can_be_given():
    """--radix-eviction-policy takes lru, lfu, slru, priority and tlru (flags of 0.5.23)."""
    assert set(AXES["engine.eviction_policy"]) <= {"lru", "lfu", "slru", "priority", "tlru"}
