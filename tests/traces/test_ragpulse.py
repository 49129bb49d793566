"""RAGPulse's folder of files, written from its description."""

from pathlib import Path

import pytest

from hybridsim.errors import UserError
from hybridsim.traces import read_trace
from tests.traces.helpers import lengths, matches, write

RAG_LENGTHS = {
    "1_sys_prompt.jsonl": ("sys_prompt_id", {1: 100, 2: 50}),
    "2_passages.jsonl": ("passage_id", {10: 300, 11: 200}),
    "3_history.jsonl": ("history_id", {20: 7}),
    "4_user_input.jsonl": ("user_input_id", {30: 20, 31: 21}),
    "5_web_search.jsonl": ("web_search_id", {40: 9}),
}


def rag(t: str, passages: list[int], user: int, extra: int = 6) -> dict:
    size = {k: v for _, ids in RAG_LENGTHS.values() for k, v in ids.items()}
    total = size[1] + size[2] + sum(size[p] for p in passages) + size[20] + size[user] + extra
    kinds = {"sys_prompt": [1, 2], "passages_ids": passages, "history": [20], "web_search": [],
             "user_input": [user]}  # fmt: skip
    return {"timestamp": t, "input_length": total, "output_length": 5, "hash_ids": kinds,
            "session_id": f"s{user}"}  # fmt: skip


def rag_folder(folder: Path, rows: list[dict]) -> Path:
    for name, (key, ids) in RAG_LENGTHS.items():
        write(folder / name, [{key: i, "token_length": n} for i, n in ids.items()])
        with (folder / name).open("ab") as file:
            file.write(b"\n")
    write(folder / "0_trace.jsonl", rows)
    return folder


def test_ragpulse_is_sorted_and_chained_by_order(tmp_path: Path) -> None:
    rows = [rag("93", [11, 10], 31), rag("82", [10, 11], 30), rag("100", [11], 30, extra=12)]
    trace = read_trace(rag_folder(tmp_path, rows), "ragpulse")
    assert [r.arrival_s for r in trace.requests] == [82.0, 93.0, 100.0]
    assert trace.dropped == {"blank line": 5}
    first, _, last = trace.requests
    assert first.prompt.ids.tolist() == [1, 2, 10, 11, 20, 30]
    assert lengths(first.prompt) == [100, 50, 300, 200, 7, 20]
    assert first.num_prompt_tokens - first.prompt.num_known_tokens == 6
    # A passage elsewhere is no prefix: behind the system prompts, [11, 10] is not [10, 11].
    assert matches(trace.requests) == [0, 150, 350]
    assert last.session_id == "s30"
    order = ["user_input", "sys_prompt", "passages_ids", "history", "web_search"]
    other = read_trace(tmp_path, "ragpulse", options={"order": order})
    assert other.requests[0].prompt.ids.tolist() == [30, 1, 2, 10, 11, 20]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hash_ids": None}, "hash_ids"),
        ({"input_length": 100}, "input_length is 100; allowed: at least"),
        ({"timestamp": "soon"}, "timestamp is 'soon'"),
        ({"session_id": ""}, "session_id"),
    ],
)
def test_ragpulse_names_what_is_wrong(tmp_path: Path, change: dict, expected: str) -> None:
    folder = rag_folder(tmp_path, [rag("82", [10], 30), rag("83", [10], 30) | change])
    with pytest.raises(UserError, match="0_trace.jsonl:2") as error:
        read_trace(folder, "ragpulse")
    assert expected in str(error.value)


def test_ragpulse_refuses_unknown_ids(tmp_path: Path) -> None:
    row = rag("82", [10], 30)
    row["hash_ids"]["passages_ids"] = [99]
    with pytest.raises(UserError, match=r"0_trace.jsonl:1.*99.*2_passages"):
        read_trace(rag_folder(tmp_path, [row]), "ragpulse")
