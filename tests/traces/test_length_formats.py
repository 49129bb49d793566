"""Traces of lengths only, and content made up for them."""

from pathlib import Path

import numpy as np
import pytest

from hybridsim.errors import UserError
from hybridsim.traces import read_trace, require_content
from tests.traces.helpers import matches

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
