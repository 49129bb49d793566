"""Conversion round trips."""

import gzip
import lzma
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings

from hybridsim.errors import UserError
from hybridsim.request import Request
from hybridsim.traces import open_trace, read_trace
from hybridsim.traces.convert import write_trace
from hybridsim.trie import build_trie
from tests.traces.helpers import stream, traces


def fields(request: Request) -> tuple:
    return (
        request.arrival_s, request.session_id, request.grid_tokens, request.previous,
        request.delay_s, request.marks, request.priority, request.num_prompt_tokens,
        request.num_output_tokens,
    )  # fmt: skip


@given(traces())
@settings(max_examples=60)
def test_segments_keep_everything(tmp_path_factory: pytest.TempPathFactory, requests: list) -> None:
    path = tmp_path_factory.mktemp("convert") / "out.jsonl"
    assert write_trace(stream(requests), path, "segments") == len(requests)
    again = read_trace(path, "segments").requests
    for before, after in zip(requests, again, strict=True):
        assert fields(before) == fields(after)
        assert before.prompt.ends.tolist() == after.prompt.ends.tolist()
        assert before.output.num_known_tokens == after.output.num_known_tokens
    for outputs in (False, True):
        one, two = build_trie(requests, outputs=outputs), build_trie(again, outputs=outputs)
        assert one.match_tokens.tolist() == two.match_tokens.tolist()
    twice = path.with_name("twice.jsonl")
    write_trace(open_trace(path, "segments"), twice, "segments")
    assert twice.read_bytes() == path.read_bytes()


@given(traces())
@settings(max_examples=60)
def test_tokens_keep_lengths_and_matches(
    tmp_path_factory: pytest.TempPathFactory, requests: list[Request]
) -> None:
    path = tmp_path_factory.mktemp("convert") / "out.jsonl"
    if not any(len(r.prompt) for r in requests):
        with pytest.raises(UserError, match="lengths only"):
            write_trace(stream(requests), path, "tokens")
        assert list(path.parent.iterdir()) == []
        return
    write_trace(stream(requests), path, "tokens")
    again = read_trace(path, "tokens").requests
    for before, after in zip(requests, again, strict=True):
        assert fields(before) == fields(after)
    for outputs in (False, True):
        one, two = build_trie(requests, outputs=outputs), build_trie(again, outputs=outputs)
        assert one.match_tokens.tolist() == two.match_tokens.tolist()


def test_token_ids_survive_conversion(tmp_path: Path) -> None:
    row = {"id": "a", "tokens": [50, 7, 50], "output": [9, 3]}
    path = tmp_path / "t.jsonl"
    path.write_bytes(orjson.dumps(row) + b"\n")
    write_trace(open_trace(path, "tokens"), tmp_path / "u.jsonl", "tokens")
    assert orjson.loads((tmp_path / "u.jsonl").read_bytes()) == row


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_compressed_name_is_a_compressed_file(tmp_path: Path, ending: str) -> None:
    """Readers refuse a plain file of such a name. Equal traces give equal bytes, at any time."""
    open_plain = {".gz": gzip.open, ".xz": lzma.open}[ending]
    source = tmp_path / "plain.jsonl"
    line = '{"id": "%d", "prompt": [["s", 50], ["u%d", 7]], "output": 3}\n'
    source.write_text("".join(line % (number, number) for number in range(200)))
    written = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}.jsonl{ending}"
        assert write_trace(open_trace(source, "segments"), path, "segments") == 200
        written.append(path.read_bytes())
        write_trace(open_trace(source, "segments"), tmp_path / "again.jsonl", "segments")
        with open_plain(path) as file:
            assert file.read() == (tmp_path / "again.jsonl").read_bytes()
        assert len(read_trace(path, "segments").requests) == 200
    assert written[0] == written[1]
    assert len(written[0]) < source.stat().st_size / 4


def test_a_failed_conversion_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    good = b'{"id": "a", "prompt": [["s", 3]], "output": 1}\n'
    path.write_bytes(good * 3 + b"oops\n")
    out = tmp_path / "out.jsonl"
    out.write_bytes(b"old")
    with pytest.raises(UserError, match=r"s\.jsonl:4"):
        write_trace(open_trace(path, "segments"), out, "segments")
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.jsonl", "s.jsonl"]
    with pytest.raises(UserError, match="folder does not exist"):
        write_trace(open_trace(path, "segments"), tmp_path / "no" / "x", "segments")
    with pytest.raises(UserError, match="--to.*'csv'.*tokens"):
        write_trace(open_trace(path, "segments"), out, "csv")
