"""Bailian's traces, on lines written from the format's description."""

from pathlib import Path

import pytest

from hybridsim.traces import read_trace
from hybridsim.trie import build_trie
from tests.traces.helpers import pairs, write


def bailian(chat: int, parent: int, t: float, num_tokens: int, ids: list[int]) -> dict:
    return {"chat_id": chat, "parent_chat_id": parent, "timestamp": t, "input_length": num_tokens,
            "output_length": 132, "type": "text", "turn": 1, "hash_ids": ids}  # fmt: skip


def test_bailian_sessions_follow_parent_links(tmp_path: Path) -> None:
    rows = [
        bailian(1, -1, 0.0, 20, [7, 8]),
        bailian(2, 55, 1.5, 32, [7, 9]),
        bailian(3, 1, 61.114, 50, [7, 10, 11, 12]),
        bailian(4, 55, 62.0, 33, [7, 9]),
        bailian(5, 3, 63.0, 16, [7]),
    ]
    trace = read_trace(write(tmp_path / "b.jsonl", rows), "bailian")
    assert [r.session_id for r in trace.requests] == ["1", "55", "1", "55", "1"]
    assert [r.previous for r in trace.requests] == [None, None, 0, None, 2]
    assert trace.requests[2].delay_s == pytest.approx(61.114)
    assert pairs(trace.requests[0]) == [(7, 16), (8, 4)]
    assert trace.requests[3].prompt.num_known_tokens == 32  # floor: no id for the 33rd token
    assert trace.requests[0].grid_tokens == 16
    assert build_trie(trace.requests).match_tokens.tolist() == [0, 16, 16, 32, 16]
    texts = " ".join(trace.assumptions)
    assert "4 prompts have an id for each started block, 1 for whole" in texts
    assert "2 parents lie before" in texts
