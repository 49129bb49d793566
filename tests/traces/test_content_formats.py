"""Readers of traces with segments or tokens."""

import gzip
from pathlib import Path

import pytest

from hybridsim.errors import UserError
from hybridsim.traces import read_trace, require_content
from tests.traces.helpers import lengths, matches, write


def test_segments_of_equal_names_are_equal_tokens(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "arrival_s": 1, "session": "s", "prompt": [["sys", 1500], ["u1", 700]],
         "output": [["a1", 200]], "marks": [1500, 2400], "priority": 2},
        {"id": 7, "arrival_s": 1.5, "prompt": [["sys", 1000], ["u2", 50]], "output": 200},
        {"id": "c", "arrival_s": 3, "session": "s", "previous": "a", "delay_s": 0.5,
         "prompt": [["sys", 1500], ["u1", 700], ["a1", 200], ["u1", 10], [None, 4]],
         "output": [], "grid_tokens": 16},
    ]  # fmt: skip
    a, b, c = read_trace(write(tmp_path / "s.jsonl", rows), "segments").requests
    assert (a.request_id, b.request_id) == ("a", "7")
    assert lengths(c.prompt) == [1500, 700, 200, 10]
    assert (c.num_prompt_tokens, c.prompt.num_known_tokens) == (2414, 2410)
    assert (a.marks, a.priority, c.previous, c.delay_s) == ((1500, 2400), 2, 0, 0.5)
    assert (b.num_output_tokens, b.output.num_known_tokens) == (200, 0)
    assert (c.num_output_tokens, c.grid_tokens) == (0, 16)
    # b's "sys" is a prefix of a's; a second "u1" does not continue the first one.
    assert matches([a, b, c]) == [0, 1000, 2200]
    assert matches([a, b, c], outputs=True) == [0, 1000, 2400]


def test_segments_may_repeat_ids_and_lengths_only_has_no_content(tmp_path: Path) -> None:
    rows = [{"id": "r0", "prompt": [[None, 9]], "output": 1}] * 2
    trace = read_trace(write(tmp_path / "s.jsonl", rows), "segments")
    assert len(trace.requests) == 2
    assert not trace.has_content
    with pytest.raises(UserError, match=r"trace\.content.*no hit rate.*shared_prefix"):
        require_content(trace)


def test_tokens_are_their_own_content(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "tokens": [5, 6, 7], "output": [8]},
        {"id": "b", "tokens": [5, 6, 7, 8, 9], "output": 4},
    ]
    a, b = read_trace(write(tmp_path / "t.jsonl", rows), "tokens").requests
    assert a.prompt.ids.tolist() == [5, 6, 7]
    assert a.prompt.ends.tolist() == [1, 2, 3]
    assert (a.arrival_s, a.grid_tokens, b.num_output_tokens) == (None, 1, 4)
    assert matches([a, b]) == [0, 3]
    assert matches([a, b], outputs=True) == [0, 4]


@pytest.mark.parametrize("packed", [False, True])
def test_marconi_turns_follow_each_other(tmp_path: Path, packed: bool) -> None:
    rows = [
        {"session_id": s, "turn_id": t, "ts": ts, "num_input_tokens": len(ids),
         "num_output_tokens": 2, "input_tokens": ids, "output_tokens": [9, 9]}
        for s, t, ts, ids in ((0, 0, 0.0, [1, 2]), (1, 0, 1.0, [1, 3]),
                              (0, 1, 2.5, [1, 2, 9, 9, 4]))
    ]  # fmt: skip
    path = write(tmp_path / "m.jsonl", rows)
    if packed:
        data = path.read_bytes()
        path = tmp_path / "m.jsonl.gz"
        path.write_bytes(gzip.compress(data))
    trace = read_trace(path, "marconi")
    found = [(r.request_id, r.session_id, r.previous, r.delay_s) for r in trace.requests]
    assert found == [("0/0", "0", None, 0), ("1/0", "1", None, 0), ("0/1", "0", 0, 2.5)]
    assert matches(trace.requests, outputs=True) == [0, 1, 4]


def test_sorting_refuses_a_turn_that_comes_before_the_one_it_continues(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "arrival_s": 5, "prompt": [["x", 1]], "output": 1},
        {"id": "b", "arrival_s": 2, "prompt": [["x", 2]], "output": 1, "previous": "a"},
    ]
    path = write(tmp_path / "x.jsonl", rows)
    with pytest.raises(UserError, match=r"trace.sort: request b \(at 2 s\) continues a"):
        read_trace(path, "segments", options={"sort": True})
