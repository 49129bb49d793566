"""The trace commands as a user types them, and formats recognised from a file's first lines."""

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from hybridsim.cli.app import app
from hybridsim.errors import UserError
from hybridsim.traces import open_trace, read_trace
from hybridsim.traces.detect import detect_format
from hybridsim.traces.generators import GENERATORS
from hybridsim.trie import build_trie


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_generate_stats_convert_round_trip(tmp_path: Path) -> None:
    chat, tokens, report = (tmp_path / n for n in ("chat.jsonl", "tokens.jsonl", "stats.json"))
    result = run("trace", "generate", "chat", chat, "--num-sessions", 9, "--user-mean", 40,
                 "--user-sigma", 0, "--seed", 3, "--arrivals", "gamma", "--cv", 2)  # fmt: skip
    assert result.exit_code == 0, result.output
    count = len(chat.read_bytes().splitlines())
    assert f"{count} requests written" in result.output
    assert detect_format(chat) == "segments"
    expected = read_trace(None, "generate", seed=3, options={
        "generator": "chat", "num_sessions": 9, "user": {"mean": 40, "sigma": 0},
        "arrivals": {"process": "gamma", "rate_per_s": 1.0, "cv": 2.0}})  # fmt: skip
    written = read_trace(chat, "segments").requests
    assert [r.arrival_s for r in written] == [r.arrival_s for r in expected.requests]
    assert [r.num_prompt_tokens for r in written] == [
        r.num_prompt_tokens for r in expected.requests
    ]
    assert {int(r.prompt.ends[1] - r.prompt.ends[0]) for r in written} == {40}

    result = run("trace", "convert", chat, tokens, "--to", "tokens")
    assert result.exit_code == 0, result.output
    assert detect_format(tokens) == "tokens"
    result = run("trace", "stats", tokens, "--json", report)
    assert result.exit_code == 0, result.output
    ideal = build_trie(written).match_tokens.sum() / sum(r.num_prompt_tokens for r in written)
    assert f"{100 * ideal:.2f} %" in result.output
    assert orjson.loads(report.read_bytes())["reuse"]["token_hit_rate"] == pytest.approx(ideal)


def test_given_arrivals_come_from_a_file(tmp_path: Path) -> None:
    times, out = tmp_path / "times.txt", tmp_path / "x.jsonl"
    times.write_text("0\n1.5\n\n7\n")
    arguments = ["trace", "generate", "few_shot", out, "--num-requests", 3, "--arrivals", "given"]
    assert run(*arguments, "--times", times).exit_code == 0
    assert [r.arrival_s for r in read_trace(out, "segments").requests] == [0.0, 1.5, 7.0]
    assert isinstance(run(*arguments).exception, UserError)
    times.write_text("0\nsoon\n")
    assert "times.txt:2" in str(run(*arguments, "--times", times).exception)


def test_stats_refuse_hit_rates_without_content(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    result = run("trace", "stats", path)
    assert result.exit_code == 0
    assert "refused" in result.output
    made_up = run("trace", "stats", path, "-o", "content.generator=unique")
    assert "0.00 %" in made_up.output
    assert "made up by unique" in " ".join(made_up.output.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["stats", "none.jsonl"], "none.jsonl"),
        (["stats", "{path}", "-o", "jitter"], "key=value"),
        (["stats", "{path}", "-o", "jitter=[1"], "YAML"),
        (["stats", "{path}", "-o", "jitter=true"], "'jitter'"),
        (["stats", "{path}", "--format", "sgments"], "did you mean 'segments'"),
        (["stats", "{path}", "--json", "/none/x.json"], "/none/x.json: cannot be written"),
        (["convert", "{path}", "{path}.out", "--to", "csv"], "--to"),
        (["generate", "chat", "{path}.out", "--user-mean", "-1"], "trace.user.mean"),
        (["generate", "chat", "{path}.out", "--user-mean", "1e308"], "trace.user.mean"),
        (["generate", "chat", "{path}.out", "--arrivals", "gamma", "--cv", "1e308"], "cv"),
        (["generate", "chat", "{path}.out", "--seed", "-1"], "seed: -1"),
        (["generate", "few_shot", "{path}.out", "--min-shots", "9"], "at most max_shots 8"),
        (["stats", "{path}", "--seed", "-1"], "seed: -1; allowed"),
        (["stats", "{path}", "--json", "/"], "/: is a folder"),
        (["stats", "{path}", "--json", "{path}/x"], "/x: cannot be written"),
        (["generate", "chat", "{path}.out", "--arrivals", "uniform"], "trace.arrivals.process"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path: Path, arguments: list[str], expected: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"id": "a", "prompt": [["s", 3]], "output": 1}\n')
    result = run("trace", *(a.replace("{path}", str(path)) for a in arguments))
    assert isinstance(result.exception, UserError)
    assert expected in str(result.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["t.jsonl"]


@pytest.mark.parametrize(
    "command", [["stats"], ["convert"], ["generate"], *(["generate", name] for name in GENERATORS)]
)
def test_every_command_shows_an_example(command: list[str]) -> None:
    result = run("trace", *command, "--help")
    assert result.exit_code == 0
    assert f"hybridsim trace {' '.join(command)}" in " ".join(result.output.split())


DETECT = {
    "segments": b'{"id": 1, "prompt": [["s", 1]], "output": 1}',
    "tokens": b'{"id": 1, "tokens": [1], "output": 1}',
    "mooncake": b'{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}',
    "mooncake-sessions": b'{"session_id": "s", "input_length": 1, "output_length": 1,'
    b' "hash_ids": [0], "timestamp": 0}\n{"session_id": "s", "delay": 1}',
    "weka": b'{"id": "t", "block_size": 64, "requests": []}',
    "bailian": b'{"chat_id": 1, "parent_chat_id": -1, "hash_ids": [1]}',
    "marconi": b'{"session_id": 0, "turn_id": 0, "ts": 0, "input_tokens": [1]}',
    "messages": b'{"messages": [{"role": "user", "content": "x"}], "output": "y"}',
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens",
    "burstgpt": b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
}


@pytest.mark.parametrize("name", DETECT)
def test_formats_are_recognised(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(DETECT[name] + b"\n")
    assert detect_format(path) == name


def test_unknown_formats_are_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'{"foo": 1}\n')
    with pytest.raises(UserError, match=r"trace.format.*foo"):
        detect_format(path)
    path.write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        detect_format(path)
    with pytest.raises(UserError, match="0_trace.jsonl"):
        detect_format(tmp_path)


def test_a_stream_reports_progress_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"id": "a", "prompt": [["s", 3]], "output": 1}\n' * 200)
    seen: list[tuple[int, int]] = []
    stream = open_trace(path, "segments", progress=lambda done, total: seen.append((done, total)))
    list(stream.requests)
    assert {total for _, total in seen} == {path.stat().st_size}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_the_shipped_trace_is_as_its_readme_says(repo_dir: Path) -> None:
    result = run("trace", "stats", repo_dir / "traces" / "quickstart.jsonl")
    assert result.exit_code == 0, result.output
    readme = (repo_dir / "traces" / "README.md").read_text()
    for shown in ("83.03 %", "92.41 %"):
        assert shown in readme
        assert shown in result.output
    options = {"generator": "chat", "num_sessions": 25, "mean_turns": 4}
    drawn = read_trace(None, "generate", options=options, seed=1).requests
    shipped = read_trace(repo_dir / "traces" / "quickstart.jsonl", "segments").requests
    assert [r.num_prompt_tokens for r in shipped] == [r.num_prompt_tokens for r in drawn]
