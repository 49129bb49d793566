"""Mooncake's traces, plain and with sessions, on lines written from their description."""

from pathlib import Path

import numpy as np
import pytest

from hybridsim.errors import UserError
from hybridsim.traces import read_trace
from hybridsim.trie import build_trie
from tests.traces.helpers import pairs, write

MOONCAKE = [
    {
        "timestamp": 0,
        "input_length": 6758,
        "output_length": 500,
        "hash_ids": list(range(14)),
    },
    {
        "timestamp": 3000,
        "input_length": 7322,
        "output_length": 490,
        "hash_ids": [0, *range(14, 28)],
    },
    {
        "timestamp": 3000,
        "input_length": 7236,
        "output_length": 794,
        "hash_ids": [0, *range(28, 42)],
    },
]


def test_mooncake_gives_the_partial_block_its_remainder(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "m.jsonl", MOONCAKE), "mooncake")
    first, second, third = trace.requests
    assert pairs(first) == [*((i, 512) for i in range(13)), (13, 6758 - 13 * 512)]
    assert first.num_output_tokens == 500
    assert first.output.num_known_tokens == 0
    assert [r.arrival_s for r in trace.requests] == [0.0, 3.0, 3.0]
    assert {r.grid_tokens for r in trace.requests} == {512}
    assert build_trie(trace.requests).match_tokens.tolist() == [0, 512, 512]
    assert pairs(third)[-1] == (41, 7236 - 14 * 512)
    assert second.session_id is None


def test_mooncake_block_size_by_option_and_by_row(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [0, 1, 2]}
    by_option = read_trace(
        write(tmp_path / "a.jsonl", [row]), "mooncake", options={"block_size": 16}
    )
    by_row = read_trace(write(tmp_path / "b.jsonl", [row | {"block_size": 16}]), "mooncake")
    for trace in (by_option, by_row):
        assert pairs(trace.requests[0]) == [(0, 16), (1, 16), (2, 8)]
        assert trace.requests[0].grid_tokens == 16


def test_mooncake_jitter_is_seeded_and_below_one_tick(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", MOONCAKE * 1 + [MOONCAKE[2] | {"timestamp": 6000}] * 20)
    plain = read_trace(path, "mooncake")
    recorded_s = {r.request_id: r.arrival_s for r in plain.requests}
    one, same, other = (
        read_trace(path, "mooncake", options={"jitter": True}, seed=seed) for seed in (1, 1, 2)
    )
    arrivals = [r.arrival_s for r in one.requests]
    assert arrivals == sorted(arrivals)
    assert arrivals == [r.arrival_s for r in same.requests]
    assert arrivals != [r.arrival_s for r in other.requests]
    for request in one.requests:
        assert 0 <= request.arrival_s - recorded_s[request.request_id] < 3
    assert any("jitter" in sentence for sentence in one.assumptions)


def test_mooncake_reads_seconds_when_told(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", [row | {"timestamp": 1.5} for row in MOONCAKE])
    trace = read_trace(path, "mooncake", options={"time_unit": "s"})
    assert [r.arrival_s for r in trace.requests] == [1.5] * 3


def test_sort_puts_a_file_in_order(tmp_path: Path) -> None:
    rows = [MOONCAKE[0] | {"timestamp": t} for t in (6000, 0, 3000)]
    trace = read_trace(write(tmp_path / "m.jsonl", rows), "mooncake", options={"sort": True})
    assert [(r.request_id, r.arrival_s) for r in trace.requests] == [("1", 0), ("2", 3), ("0", 6)]


def test_chained_ids_are_tested_and_reported(tmp_path: Path) -> None:
    rows = [{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": ids} for ids in
            ([0, 1], [0, 2], [3, 1])]  # fmt: skip
    good = read_trace(write(tmp_path / "g.jsonl", rows[:2]), "mooncake")
    bad = read_trace(write(tmp_path / "b.jsonl", rows), "mooncake")
    assert any("ids are chained" in text for text in good.assumptions)
    assert any("not chained: 1 occurrences" in text for text in bad.assumptions)


AIPERF = [
    {"session_id": "s1", "input_length": 1100, "output_length": 335, "hash_ids": [0, 1, 2],
     "timestamp": 0.0, "group_id": 46},
    {"session_id": "s1", "input_length": 600, "output_length": 7, "hash_ids": [9, 10],
     "delay": 12219.3},
    {"session_id": "s2", "input_length": 512, "output_length": 9, "hash_ids": [0],
     "timestamp": 4000.0},
    {"session_id": "s1", "input_length": 5, "output_length": 0, "hash_ids": [11], "delay": 1000},
]  # fmt: skip


@pytest.mark.parametrize("name", ["mooncake", "mooncake-sessions"])
def test_aiperf_turns_are_accumulated_under_both_names(tmp_path: Path, name: str) -> None:
    trace = read_trace(write(tmp_path / "s.jsonl", AIPERF), name)
    ids = [r.request_id for r in trace.requests]
    assert ids == ["s1/0", "s2/0", "s1/1", "s1/2"]
    first, other, second, third = trace.requests
    # prompts: 1100; 1100 + 335 + 600; 2035 + 7 + 5
    assert [r.num_prompt_tokens for r in (first, second, third)] == [1100, 2035, 2047]
    output_id = int(first.output.ids[0])
    assert pairs(second) == [(0, 512), (1, 512), (2, 76), (output_id, 335), (9, 512), (10, 88)]
    assert second.previous == 0
    assert third.previous == 2
    assert second.delay_s == pytest.approx(12.2193)
    assert second.arrival_s == pytest.approx(12.2193)
    assert other.arrival_s == 4.0
    # The next turn holds the whole turn before, prompt and answer.
    trie = build_trie(trace.requests, outputs=True)
    assert trie.match_tokens.tolist() == [0, 512, 1435, 2042]
    assert any("accumulated" in text for text in trace.assumptions)


def test_aiperf_prompts_only(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", AIPERF)
    trace = read_trace(path, "mooncake-sessions", options={"history": "prompts_only"})
    assert [r.num_prompt_tokens for r in trace.requests] == [1100, 512, 1700, 1705]
    assert trace.requests[0].output.num_known_tokens == 0


def test_session_id_without_delay_is_plain_mooncake(tmp_path: Path) -> None:
    rows = [row | {"session_id": "x"} for row in MOONCAKE]
    trace = read_trace(write(tmp_path / "m.jsonl", rows), "mooncake")
    assert [r.num_prompt_tokens for r in trace.requests] == [6758, 7322, 7236]
    assert trace.requests[0].session_id == "x"


def test_arrivals_can_be_drawn_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", [MOONCAKE[0] | {"timestamp": i} for i in range(4000)])
    options = {"time_unit": "ms", "arrivals": {"process": "gamma", "rate_per_s": 5.0, "cv": 2.0}}
    arrivals = [r.arrival_s for r in read_trace(path, "mooncake", options=options).requests]
    gaps = np.diff(arrivals)
    # Mean 1/5 s and cv 2; the standard error of the mean is 0.2 * 2 / sqrt(4000) = 0.0063.
    assert abs(gaps.mean() - 0.2) < 4 * 0.0063
    assert abs(gaps.std() / gaps.mean() - 2.0) < 0.3
    faster = read_trace(path, "mooncake", options={"time_unit": "ms", "arrivals": {"speedup": 2}})
    assert faster.requests[3999].arrival_s == pytest.approx(3.999 / 2)


def test_sessions_move_as_a_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", AIPERF)
    options = {"arrivals": {"process": "given", "times_s": [50.0, 51.0]}}
    trace = read_trace(path, "mooncake", options=options)
    found = [(r.request_id, r.previous) for r in trace.requests]
    assert found == [("s1/0", None), ("s2/0", None), ("s1/1", 0), ("s1/2", 2)]
    assert trace.requests[2].arrival_s == pytest.approx(50 + 12.2193)
    with pytest.raises(UserError, match=r"times_s.*holds 1 times"):
        read_trace(path, "mooncake", options={"arrivals": {"process": "given", "times_s": [50.0]}})


def test_mooncake_sessions_can_be_guessed(tmp_path: Path) -> None:
    def row(t: int, num_tokens: int, ids: list[int]) -> dict:
        return {"timestamp": t, "input_length": num_tokens, "output_length": 10, "hash_ids": ids}

    rows = [
        row(0, 1500, [0, 1, 2]),  # opens a session; blocks 0 and 1 are full
        row(1000, 600, [0, 3]),  # only block 0 is full, and it is the other's: nothing to go on
        row(2000, 1300, [0, 4, 5]),  # another session
        row(3000, 1505, [0, 1, 6]),  # too short to hold the first prompt and its 10 tokens
        row(4000, 1600, [0, 1, 6, 7]),
    ]
    trace = read_trace(
        write(tmp_path / "m.jsonl", rows), "mooncake", options={"infer_sessions": True}
    )
    # The row at 3 s ends with block 1, which session "0" brought in: it is a session of its own and
    # cannot be continued, so the last row goes on with the first.
    assert [r.session_id for r in trace.requests] == ["0", "1", "2", "3", "0"]
    assert [r.previous for r in trace.requests] == [None, None, None, None, 0]
    assert trace.requests[4].delay_s == 4.0
