"""The conformance kit itself: it shrinks, packs and scales rightly, and the recording has teeth."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.generate import TraceShape, random_trace
from conformance.golden import pack_tokens, pack_trace, read, unpack_tokens, unpack_trace
from conformance.sglang.facts import comparable, condensed, our_facts
from conformance.shrink import shrink
from conformance.traces import scaled
from hybridsim.engines.sglang import row
from hybridsim.engines.sglang.components import States
from hybridsim.engines.sglang.leaves import LeafQueue
from hybridsim.engines.sglang.run import RequestRun
from hybridsim.engines.sglang.window import WindowKV
from hybridsim.request import Request, Spans

JOBS = read(Path(__file__).with_name("golden.xz"))


def _differs(job: dict[str, Any]) -> bool:
    ours = our_facts(job["config"], unpack_trace(job["trace"]))
    return [condensed(comparable(one, job["config"])) for one in ours] != job["facts"]


def _nothing(*args: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (States, "cap_path", _nothing),
        (States, "refresh_after_match", _nothing),
        (WindowKV, "refresh_after_insert", _nothing),
        (row, "SLIDE_TOKENS", 100),
        (LeafQueue, "lowest", lambda self: next(iter(self._leaves.values()), None)),
        (RequestRun, "_take_int8_slot", _nothing),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_recording_notices_a_wrong_rule(
    owner: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, wrong)

    def notices(job: dict[str, Any]) -> bool:
        try:
            return _differs(job)
        except AssertionError:  # a law of the engine's own
            return True

    assert any(notices(job) for job in JOBS)


@given(st.lists(st.integers(0, 50)), st.integers(0, 50), st.integers(0, 50))
def test_shrinking_leaves_only_what_is_needed(items: list[int], one: int, other: int) -> None:
    items = [*items, one, other]
    small = shrink(items, lambda rest: one in rest and other in rest)
    assert sorted(small) == sorted({one, other})


@given(st.lists(st.integers(0, 6)))
def test_packed_tokens_come_back(tokens: list[int]) -> None:
    assert unpack_tokens(pack_tokens(tokens)) == tokens


def test_random_traces_share_heads_and_keep_their_bounds() -> None:
    shape = TraceShape(grids=(16, 24), num_requests=200, max_prompt_tokens=150)
    trace = random_trace(shape, np.random.default_rng(3))
    assert unpack_trace(pack_trace(trace)) == trace
    lengths = [len(one["tokens"]) for one in trace]
    assert min(lengths) >= 1
    assert max(lengths) <= 150
    assert sum(length % 16 == 0 for length in lengths) > 200 / 16
    heads = [tuple(one["tokens"][:4]) for one in trace]
    assert len(set(heads)) < len(heads) / 2


def test_scaled_traces_keep_who_shares_what() -> None:
    def request(name: str, *blocks: int) -> Request:
        return Request(name, Spans.of([(block, 64) for block in blocks]), Spans.unknown(32))

    first, second, third = scaled(
        [request("a", 1, 2, 3), request("b", 1, 2, 4), request("c", 5)], scale=16
    )
    assert [len(one["tokens"]) for one in (first, second, third)] == [12, 12, 4]
    assert first["tokens"][:8] == second["tokens"][:8]
    assert not set(first["tokens"][8:]) & set(second["tokens"][8:])
    assert not set(third["tokens"]) & set(first["tokens"])
    assert [len(one["output"]) for one in (first, second)] == [2, 2]
    assert not set(first["output"]) & set(second["output"])
