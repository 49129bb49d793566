"""Marks that a trace option writes: against all pairs of prompts, and lines made by hand."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.errors import UserError
from hybridsim.policies import make_checkpoint
from hybridsim.policies.checkpoint.base import PromptView
from hybridsim.request import Request, Spans
from hybridsim.traces import read_trace
from hybridsim.traces.marks import shared_ends, with_marks
from hybridsim.traces.reading import Notes
from tests.plain import num_common, tokens_of

pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=5)
sessions = st.sampled_from([None, "a", "b", "c"])


@given(prompts=st.lists(st.tuples(pairs, sessions), min_size=1, max_size=12))
@settings(max_examples=200)
def test_shared_is_the_longest_prefix_that_another_session_has(prompts):
    requests = [Request(str(i), Spans.of(p), Spans.unknown(1), session_id=s)
                for i, (p, s) in enumerate(prompts)]  # fmt: skip
    tokens = [tokens_of(request.prompt) for request in requests]

    def is_other(i, j):
        return i != j and (prompts[i][1] is None or prompts[i][1] != prompts[j][1])

    expected = [
        max(
            (num_common(tokens[i], tokens[j]) for j in range(len(tokens)) if is_other(i, j)),
            default=0,
        )
        for i in range(len(tokens))
    ]
    assert shared_ends(requests) == expected


def test_rules_add_to_the_marks_that_are_there_and_say_what_they_know():
    requests = [
        Request("0", Spans.of([(1, 4), (2, 6)]), Spans.unknown(0), session_id="a", marks=(7,)),
        Request("1", Spans.of([(1, 4), (3, 5)]), Spans.unknown(0), session_id="b"),
        Request("2", Spans.of([(4, 3)]), Spans.unknown(0), session_id="c"),
    ]
    notes = Notes()
    marked = with_marks(requests, ("shared", "prompt_end"), notes)
    assert [request.marks for request in marked] == [(4, 7, 10), (4, 9), (3,)]
    assert "whole trace" in notes.assumptions[0]
    view = PromptView(marked[0], 0, 0, 10, 1)
    assert list(make_checkpoint("marked").positions(view)) == [4, 7, 10]


WEKA = {
    "id": "s", "block_size": 64, "tool_tokens": 130, "system_tokens": 100,
    "requests": [
        {"t": 0.0, "type": "n", "in": 400, "out": 5, "hash_ids": [1, 2, 3, 4, 5, 6]},
        {"t": 9.0, "type": "n", "in": 200, "out": 5, "hash_ids": [1, 2, 3]},
        {"t": 20.0, "type": "subagent", "requests": [
            {"t": 0.0, "type": "n", "in": 128, "out": 5, "hash_ids": [1, 9]}]},
    ],
}  # fmt: skip


def test_layout_of_weka_is_the_end_of_tools_and_of_the_system_prompt(tmp_path):
    """A prompt cut short has its end; a subagent without counts has none of its own."""
    path = tmp_path / "weka.jsonl"
    path.write_bytes(orjson.dumps(WEKA))
    trace = read_trace(path, "weka", options={"marks": ["layout"]})
    assert [request.marks for request in trace.requests] == [(130, 230), (130, 200), ()]
    assert not any(request.marks for request in read_trace(path, "weka").requests)


def test_layout_of_ragpulse_is_the_end_of_each_kind(shared_dir):
    path = shared_dir / "traces/ragpulse"
    trace = read_trace(path, "ragpulse", first=200, options={"marks": ["layout"]})
    for request in trace.requests:
        ends = set(request.prompt.ends.tolist())
        assert set(request.marks) <= ends
        assert request.prompt.num_known_tokens == request.marks[-1]
        assert len(request.marks) <= 5


def test_shared_is_counted_among_the_requests_that_are_read(tmp_path):
    lines = [
        {"id": str(i), "session": str(i), "prompt": [["s", 8], [f"u{i}", 4]], "output": 0}
        for i in (0, 1)
    ]
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
    marks = {"marks": ["shared"]}
    both = read_trace(path, "segments", options=marks).requests
    assert [request.marks for request in both] == [(8,), (8,)]
    [one] = read_trace(path, "segments", first=1, options=marks).requests
    assert one.marks == ()


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (["layout"], "does not tell a prompt's parts"),
        (["ends"], "layout"),
        ("shared", "'shared': .* a valid list"),
    ],
)
def test_what_a_format_does_not_tell_is_refused(tmp_path, marks, message):
    path = tmp_path / "x.jsonl"
    path.write_bytes(orjson.dumps({"id": "0", "prompt": [["s", 8]], "output": 0}))
    with pytest.raises(UserError, match=message) as error:
        read_trace(path, "segments", options={"marks": marks})
    assert error.value.place.startswith("trace.marks")
