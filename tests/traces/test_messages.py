"""Traces of chat messages, and the tokens that they are taken for."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.traces import read_trace
from hybridsim.traces.tokenizers import PIECE, WordTokenizer
from tests.traces.helpers import matches, write

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is a trie?"}]},
    {"role": "assistant", "content": "A tree of prefixes."},
    {"role": "user", "content": "Why?"},
]


def test_messages_let_the_next_turn_contain_the_one_before(tmp_path: Path) -> None:
    rows = [
        {"id": "t1", "session_id": "s", "timestamp": 1700000000.0, "messages": CHAT[:3]},
        {"id": "t2", "session_id": "s", "timestamp": 1700000009.5, "messages": CHAT,
         "output": "Since."},
        {"id": "t3", "session_id": "x", "timestamp": 1700000011.0, "messages": CHAT[:2],
         "output": 12},
    ]  # fmt: skip
    trace = read_trace(write(tmp_path / "m.jsonl", rows), "messages")
    one, two, three = trace.requests
    assert [r.arrival_s for r in trace.requests] == [0.0, 9.5, 11.0]
    assert (two.previous, two.delay_s, two.session_id) == (0, 9.5, "s")
    n1, o1 = one.num_prompt_tokens, one.num_output_tokens
    # The third prompt is the first one; all of it is found again.
    assert matches([one, two, three], outputs=True) == [0, n1 + o1, n1]
    # Without outputs the second turn finds the first prompt, the opening of the answer included.
    assert matches([one, two, three]) == [0, n1, n1]
    assert three.num_output_tokens == 12


def test_messages_unroll_a_conversation(tmp_path: Path) -> None:
    rows = [{"id": "c", "messages": [*CHAT, {"role": "assistant", "content": "So."}]},
            {"id": "d", "messages": CHAT[:2]}]  # fmt: skip
    path = write(tmp_path / "m.jsonl", rows)
    trace = read_trace(path, "messages", options={"unit": "conversation"})
    assert [(r.request_id, r.previous, r.session_id) for r in trace.requests] == [
        ("c/0", None, "c"),
        ("c/1", 0, "c"),
    ]
    assert trace.dropped == {"conversation without an assistant message": 1}
    assert matches(trace.requests, outputs=True)[1] == (
        trace.requests[0].num_prompt_tokens + trace.requests[0].num_output_tokens
    )
    whole = read_trace(path, "messages", options={"output_tokens": 33}).requests
    assert [r.num_output_tokens for r in whole] == [
        trace.requests[1].num_output_tokens,
        33,
    ]


def test_messages_see_tools_and_tool_calls(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "ls"}]}
    rows = [
        {"messages": CHAT[:2], "output": 1},
        {"messages": CHAT[:2], "tools": [{"name": "ls"}], "output": 1},
        {"messages": [*CHAT[:2], call, *CHAT[3:]], "output": 1},
        {"messages": [*CHAT[:2], call | {"tool_calls": [{"name": "rm"}]}, *CHAT[3:]], "output": 1},
    ]
    requests = read_trace(write(tmp_path / "m.jsonl", rows), "messages").requests
    match = matches(requests)
    assert match[1] == 1  # only the start mark: tools come first
    assert match[0] < requests[0].num_prompt_tokens <= match[2] < match[3]


def test_a_tokenizer_file_is_used(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"user": 0, "assistant": 1, "hi": 2, "[?]": 3}, "[?]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = write(tmp_path / "m.jsonl", [{"messages": [{"role": "user", "content": "hi hi ho"}]}])
    options = {"tokenizer": str(tmp_path / "tokenizer.json")}
    (request,) = read_trace(path, "messages", options=options).requests
    start, end = 1 << 60, (1 << 60) + 1
    assert request.prompt.ids.tolist() == [start, 0, 2, 2, 3, end, start, 1]


def test_the_fallback_tokenizer_is_prefix_stable_and_about_as_fine_as_trained_ones() -> None:
    text = (
        "Prefix caching keeps the key and value tensors of a prompt, 2048 tokens long, for reuse. "
    )
    tokenizer = WordTokenizer()
    ids = tokenizer.encode(text * 20)
    assert WordTokenizer().encode(text * 20) == ids
    assert 3.5 < len(text) * 20 / len(ids) < 5.5
    start = tokenizer.encode(text.rstrip())
    assert ids[: len(start)] == start


@given(st.text(max_size=60))
def test_the_fallback_tokenizer_loses_no_character(text: str) -> None:
    # Equal ids must mean equal texts, so pieces have to add up to the text.
    assert "".join(PIECE.findall(text)) == text
    assert len(WordTokenizer().encode(text)) == len(PIECE.findall(text))


def test_turns_of_a_chat_log_follow_each_other_in_time_and_not_in_the_file(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "hello"}]
    rows = [
        {"id": name, "messages": said, "output": 3, "session_id": "s", "timestamp": at}
        for name, at in (("late", 9.0), ("early", 2.0), ("middle", 5.0))
    ]
    trace = read_trace(write(tmp_path / "x.jsonl", rows), "messages")
    found = [(r.request_id, r.arrival_s, r.previous, r.delay_s) for r in trace.requests]
    assert found == [("early", 0.0, None, 0.0), ("middle", 3.0, 0, 3.0), ("late", 7.0, 1, 4.0)]
