"""Readers of traces with segments, tokens, texts, or lengths only."""

import gzip
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hybridsim.errors import UserError
from hybridsim.request import Request, Spans
from hybridsim.traces import read_trace, require_content
from hybridsim.traces.tokenizers import PIECE, WordTokenizer
from hybridsim.trie import build_trie


def write(path: Path, rows: list[dict]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def lengths(spans: Spans) -> list[int]:
    return np.diff(spans.ends, prepend=0).tolist()


def matches(requests: list[Request], *, outputs: bool = False) -> list[int]:
    return build_trie(requests, outputs=outputs).match_tokens.tolist()


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


AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 23:59:59.6805900,374,44\r\n2023-11-17 00:00:00.9951691,396,109"
)


@pytest.fixture
def azure_path(tmp_path: Path) -> Path:
    path = tmp_path / "azure.csv"
    path.write_bytes(AZURE.encode())
    return path


def test_azure_keeps_seven_digits_and_has_no_content(azure_path: Path) -> None:
    trace = read_trace(azure_path, "azure")
    assert [r.num_prompt_tokens for r in trace.requests] == [374, 396]
    assert [r.num_output_tokens for r in trace.requests] == [44, 109]
    # 0.9951691 + 0.3194100 s; floats near 3e7 resolve 4 ns
    assert trace.requests[1].arrival_s == pytest.approx(1.3145791, abs=2e-8)
    assert not trace.has_content
    assert trace.requests[0].prompt.num_known_tokens == 0
    with pytest.raises(UserError, match="lengths only"):
        require_content(trace)


def test_azure_reads_vidurs_copy(tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,374,44\n2.5,10,1\n")
    trace = read_trace(path, "azure")
    assert [(r.arrival_s, r.num_prompt_tokens) for r in trace.requests] == [(0, 374), (2, 10)]


BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
)


def test_burstgpt_drops_failures_and_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "b.csv"
    rows = ["5,12,1.5,ChatGPT,472,18,490,Conversation log", "45.5,,2,GPT-4,1087,0,1087,API log",
            "50,,2,GPT-4,10,3,13,API log"]  # fmt: skip
    path.write_text("\n".join([BURST, *rows]))
    trace = read_trace(path, "burstgpt")
    assert [(r.arrival_s, r.session_id) for r in trace.requests] == [(0, "12"), (45, None)]
    assert trace.dropped == {"failed request (no response tokens)": 1}
    everything = read_trace(path, "burstgpt", options={"keep_failed": True, "model": "GPT-4"})
    assert [r.num_output_tokens for r in everything.requests] == [0, 3]
    assert everything.dropped == {"row of another model": 1}


@pytest.mark.parametrize("name", ["multi_turn_chat", "shared_prefix", "unique"])
def test_made_up_content_keeps_every_length(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(5)
    path = tmp_path / "v.csv"
    rows = [f"{i},{rng.integers(1, 3000)},{rng.integers(0, 300)}" for i in range(400)]
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]))
    plain = read_trace(path, "azure").requests
    trace = read_trace(path, "azure", options={"content": {"generator": name}}, seed=3)
    assert trace.has_content
    assert any("made up by" in text and name in text for text in trace.assumptions)
    for before, after in zip(plain, trace.requests, strict=True):
        assert after.num_prompt_tokens == before.num_prompt_tokens
        assert after.prompt.num_known_tokens == before.num_prompt_tokens
        assert after.num_output_tokens == before.num_output_tokens
        assert after.arrival_s == before.arrival_s
    match = matches(trace.requests, outputs=True)
    assert (sum(match) == 0) == (name == "unique")
    for request, found in zip(trace.requests, match, strict=True):
        if request.previous is not None:  # a turn holds all of the turn before
            before = trace.requests[request.previous]
            assert found >= before.num_prompt_tokens + before.num_output_tokens
    again = read_trace(path, "azure", options={"content": {"generator": name}}, seed=3)
    assert matches(again.requests, outputs=True) == match


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "content.generator: is missing; allowed: one of multi_turn_chat"),
        ({"generator": [1]}, "content.generator: unknown name"),
        ("uniqe", "did you mean 'unique'"),
        ({"generator": "unique", "x": 1}, "unknown name 'x'; allowed: none"),
        (3, "content: 3: Input should be a mapping"),
    ],
)
def test_made_up_content_is_named_in_full_or_refused(azure_path, content, said) -> None:
    with pytest.raises(UserError, match=said):
        read_trace(azure_path, "azure", options={"content": content})


def test_a_name_alone_is_content_and_the_error_shows_how(azure_path: Path) -> None:
    named = read_trace(azure_path, "azure", options={"content": "unique"})
    whole = read_trace(azure_path, "azure", options={"content": {"generator": "unique"}})
    assert named.assumptions == whole.assumptions
    assert matches(named.requests) == matches(whole.requests)
    with pytest.raises(UserError, match="such as content: multi_turn_chat"):
        require_content(read_trace(azure_path, "azure"))


def test_turns_of_a_chat_log_follow_each_other_in_time_and_not_in_the_file(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "hello"}]
    rows = [
        {"id": name, "messages": said, "output": 3, "session_id": "s", "timestamp": at}
        for name, at in (("late", 9.0), ("early", 2.0), ("middle", 5.0))
    ]
    trace = read_trace(write(tmp_path / "x.jsonl", rows), "messages")
    found = [(r.request_id, r.arrival_s, r.previous, r.delay_s) for r in trace.requests]
    assert found == [("early", 0.0, None, 0.0), ("middle", 3.0, 0, 3.0), ("late", 7.0, 1, 4.0)]


def test_sorting_refuses_a_turn_that_comes_before_the_one_it_continues(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "arrival_s": 5, "prompt": [["x", 1]], "output": 1},
        {"id": "b", "arrival_s": 2, "prompt": [["x", 2]], "output": 1, "previous": "a"},
    ]
    path = write(tmp_path / "x.jsonl", rows)
    with pytest.raises(UserError, match=r"trace.sort: request b \(at 2 s\) continues a"):
        read_trace(path, "segments", options={"sort": True})
