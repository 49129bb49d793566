"""Weka's traces of agents, on sessions written from the format's description."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from hybridsim.traces import open_trace, read_trace
from hybridsim.trie import build_trie
from tests.traces.helpers import write


def call(t: float, num_tokens: int, ids: list[int], **more: object) -> dict:
    return {"t": t, "type": "n", "model": "opus", "in": num_tokens, "out": 2, "hash_ids": ids,
            "api_time": 1.0} | more  # fmt: skip


def session(name: str, requests: list[dict], **more: object) -> dict:
    return {"id": name, "models": ["opus"], "block_size": 64, "hash_id_scope": "local",
            "tool_tokens": 64, "system_tokens": 70, "requests": requests} | more  # fmt: skip


SUBAGENT = {
    "t": 30.0, "type": "subagent", "agent_id": "a", "duration_ms": 20000, "status": "completed",
    "tool_tokens": 0, "system_tokens": 0,
    "requests": [call(0.0, 64, [50]), call(8.0, 130, [50, 51], think_time=7.0)],
}  # fmt: skip


WEKA = [
    session("one", [call(0.0, 130, [1, 2]), call(5.0, 200, [1, 2, 3], think_time=4.0), SUBAGENT,
                    call(33.0, 260, [1, 2, 3, 4], think_time=27.0)]),
    session("copy", [call(0.0, 130, [1, 2]), call(5.0, 200, [1, 2, 3], think_time=4.0), SUBAGENT,
                     call(33.0, 260, [1, 2, 3, 4], think_time=27.0)]),
    session("two", [call(0.0, 130, [1, 2])]),
]  # fmt: skip


TWO_STARTS = {"arrivals": {"process": "given", "times_s": [100.0, 110.0, 120.0]}}


@pytest.fixture(params=["plain", "xz"])
def weka_path(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = write(tmp_path / "w.jsonl", WEKA)
    if request.param == "xz":
        packed = path.with_suffix(".jsonl.xz")
        packed.write_bytes(lzma.compress(path.read_bytes()))
        return packed
    return path


def test_weka_sessions_are_merged_in_order_and_copies_dropped(weka_path: Path) -> None:
    trace = read_trace(weka_path, "weka", options=TWO_STARTS)
    assert trace.dropped == {"session that is a copy of an earlier one": 1}
    found = [(r.request_id, r.arrival_s, r.previous, r.delay_s) for r in trace.requests]
    # The marker at 30 s with a duration of 20 s stands at the subagent's end: it runs from 10 s.
    # Its last call ends at 10 + 8 + 1 = 19 s, and the parent goes on 33 - 19 = 14 s later.
    assert found == [
        ("one/0", 100.0, None, 0.0),
        ("one/1", 105.0, 0, 4.0),
        ("one/2", 110.0, 1, 4.0),
        ("two/0", 110.0, None, 0.0),
        ("one/3", 118.0, 2, 7.0),
        ("one/4", 133.0, 4, 14.0),
    ]


def test_weka_ids_are_local_and_the_partial_block_has_none(weka_path: Path) -> None:
    trace = read_trace(weka_path, "weka", options=TWO_STARTS)
    matches = dict(
        zip(
            [r.request_id for r in trace.requests],
            build_trie(trace.requests).match_tokens.tolist(),
            strict=True,
        )
    )
    assert matches == {"one/0": 0, "one/1": 128, "one/2": 0, "two/0": 0, "one/3": 64, "one/4": 192}
    first = trace.requests[0]
    assert first.prompt.num_known_tokens == 128
    assert first.num_prompt_tokens == 130
    assert first.grid_tokens == 64


def test_weka_prompts_that_grow_share_their_memory(weka_path: Path) -> None:
    trace = read_trace(weka_path, "weka", options=TWO_STARTS)
    by_id = {r.request_id: r for r in trace.requests}
    assert np.shares_memory(by_id["one/0"].prompt.ids, by_id["one/4"].prompt.ids)
    assert np.shares_memory(by_id["one/0"].prompt.ends, by_id["two/0"].prompt.ends)


def test_weka_can_share_the_tool_and_system_prefix(weka_path: Path) -> None:
    trace = read_trace(weka_path, "weka", options=TWO_STARTS | {"share_prefix": True})
    match = build_trie(trace.requests).match_tokens.tolist()
    # (64 + 70) // 64 = 2 blocks of equal model, tool and system counts are now common.
    assert match[[r.request_id for r in trace.requests].index("two/0")] == 128
    assert any("cannot confirm" in text for text in trace.assumptions)


def test_weka_keeps_copies_when_told(weka_path: Path) -> None:
    trace = read_trace(weka_path, "weka", options=TWO_STARTS | {"keep_duplicates": True})
    assert len(trace.requests) == 11
    assert trace.dropped == {}


def test_weka_models_can_be_kept_apart(tmp_path: Path) -> None:
    rows = [session("a", [call(0.0, 64, [1]), call(1.0, 64, [1], model="haiku")])]
    path = write(tmp_path / "w.jsonl", rows)
    merged = read_trace(path, "weka", options=TWO_STARTS)
    apart = read_trace(path, "weka", options=TWO_STARTS | {"models": "separate"})
    assert build_trie(merged.requests).match_tokens.tolist() == [0, 64]
    assert build_trie(apart.requests).match_tokens.tolist() == [0, 0]


def test_weka_async_subagents_start_at_their_marker_and_nobody_waits(tmp_path: Path) -> None:
    agent = SUBAGENT | {"status": "async_launched", "duration_ms": None, "t": 2.0}
    rows = [session("a", [call(0.0, 64, [1]), agent, call(20.0, 128, [1, 2], think_time=19.0)])]
    trace = read_trace(write(tmp_path / "w.jsonl", rows), "weka", options=TWO_STARTS)
    found = [(r.arrival_s, r.previous, r.delay_s) for r in trace.requests]
    assert found == [(100, None, 0), (102, 0, 1), (110, 1, 7), (120, 0, 19)]


def test_weka_starts_depend_on_the_seed_only(weka_path: Path) -> None:
    starts = [
        [r.arrival_s for r in read_trace(weka_path, "weka", seed=seed).requests]
        for seed in (1, 1, 2)
    ]
    assert starts[0] == starts[1] != starts[2]


def test_first_stops_early_and_links_stay_inside(weka_path: Path) -> None:
    whole = read_trace(weka_path, "weka", options=TWO_STARTS).requests
    some = list(open_trace(weka_path, "weka", first=4, options=TWO_STARTS).requests)
    assert [r.request_id for r in some] == [r.request_id for r in whole[:4]]
    assert all(r.previous is None or r.previous < 4 for r in some)
