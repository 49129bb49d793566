"""Mistakes in trace files and in options are one UserError that says where, what, and what else."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from hybridsim.errors import UserError
from hybridsim.traces import FORMATS, read_trace
from traces.bad_traces import BAD_TRACES

GOOD = b'{"id": "a", "arrival_s": 0, "prompt": [["sys", 10]], "output": 3}\n'


@pytest.mark.parametrize(
    ("format_name", "data", "expected"),
    [pytest.param(*row, id=name) for name, *row in BAD_TRACES],
)
def test_a_broken_file_is_named_with_its_line(
    tmp_path: Path, format_name: str, data: bytes, expected: list[str]
) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        read_trace(path, format_name)
    for text in ["broken.jsonl", *expected]:
        assert text in str(error.value)


@pytest.mark.parametrize(
    ("format_name", "options", "expected"),
    [
        ("mooncak", {}, ["trace.format", "'mooncak'", "mooncake", "weka"]),
        ("segments", {"jiter": True}, ["trace", "'jiter'", "arrivals", "sort"]),
        ("mooncake", {"jitter": "maybe"}, ["trace.jitter", "'maybe'"]),
        ("mooncake", {"block_size": 0}, ["trace.block_size", "0"]),
        ("weka", {"models": "both"}, ["trace.models", "'both'", "merged"]),
        ("segments", {"arrivals": {"process": "poison"}}, ["trace.arrivals.process", "poisson"]),
        ("segments", {"arrivals": {"proces": 1}}, ["trace.arrivals", "'proces'", "rate_per_s"]),
        ("segments", {"arrivals": {"process": "poisson"}}, ["trace.arrivals.rate_per_s"]),
        ("segments", {"arrivals": {"process": "gamma", "rate_per_s": -1}}, ["rate_per_s", "-1"]),
        ("segments", {"arrivals": {"process": "given"}}, ["trace.arrivals.times_s"]),
        (
            "segments",
            {"arrivals": {"process": "given", "times_s": [3.0, 1.0]}},
            ["trace.arrivals.times_s", "1.0", "rising"],
        ),
        (
            "weka",
            {"arrivals": {"process": "recorded"}},
            ["trace.arrivals.process", "poisson"],
        ),
        ("azure", {"content": {"generator": "magic"}}, ["trace.content.generator", "'magic'"]),
        (
            "azure",
            {"content": {"generator": "shared_prefix", "zip": 1}},
            ["trace.content", "'zip'", "zipf"],
        ),
        ("messages", {"tokenizer": "no/such.json"}, ["trace.tokenizer", "no/such.json", "words"]),
        ("ragpulse", {"order": ["history"]}, ["trace.order", "passages_ids"]),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format_name: str,
    options: Mapping[str, object],
    expected: list[str],
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    data = {
        "weka": b'{"id": "s", "requests": [{"t":0,"type":"n","in":1,"out":1,"hash_ids":[]}]}\n',
        "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,374,44",
        "messages": b'{"messages": [{"role": "user", "content": "x"}]}\n',
    }
    path = tmp_path / "t.jsonl"
    path.write_bytes(data.get(format_name, GOOD * 2))
    with pytest.raises(UserError) as error:
        read_trace(path, format_name, options=options)
    for text in expected:
        assert text in str(error.value)


@pytest.mark.parametrize("format_name", [name for name, f in FORMATS.items() if f.needs_path])
def test_a_missing_path_is_an_error(tmp_path: Path, format_name: str) -> None:
    with pytest.raises(UserError, match=r"trace\.path.*does not exist"):
        read_trace(tmp_path / "none.jsonl", format_name)
    with pytest.raises(UserError, match=r"trace\.path: missing"):
        read_trace(None, format_name)


def test_generate_takes_no_path_and_needs_a_generator(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"trace\.path"):
        read_trace(tmp_path, "generate", options={"generator": "chat"})
    with pytest.raises(UserError, match=r"trace\.generator.*few_shot"):
        read_trace(None, "generate", options={"generator": "chta"})
    with pytest.raises(UserError, match=r"trace.*'turns'.*mean_turns"):
        read_trace(None, "generate", options={"generator": "chat", "turns": 3})


def test_first_must_be_positive(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(GOOD)
    with pytest.raises(UserError, match=r"trace\.first"):
        read_trace(path, "segments", first=0)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read as a file"):
        read_trace(tmp_path, "segments")
    path = tmp_path / "t.jsonl"
    path.write_bytes(GOOD)
    with pytest.raises(UserError, match="is no folder"):
        read_trace(path, "ragpulse")
