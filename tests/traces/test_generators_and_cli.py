"""Seeded workloads, and the trace commands as a user types them."""

from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from hybridsim.cli.app import app
from hybridsim.errors import UserError
from hybridsim.traces import open_trace, read_trace
from hybridsim.traces.detect import detect_format
from hybridsim.traces.draws import Lengths, Popularity
from hybridsim.traces.generators import GENERATORS
from hybridsim.trie import build_trie

SMALL = {
    "chat": {"num_sessions": 12},
    "shared_prefix": {"num_requests": 60},
    "coding_agent": {"num_sessions": 5},
    "few_shot": {"num_requests": 60},
}


def generate(name: str, seed: int = 0, **knobs: object) -> list:
    options = {"generator": name, **SMALL[name], **knobs}
    return read_trace(None, "generate", options=options, seed=seed).requests


@pytest.mark.parametrize("name", GENERATORS)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=8)
def test_generators_keep_their_promises(name: str, seed: int) -> None:
    requests = generate(name, seed)
    arrivals = [r.arrival_s for r in requests]
    assert arrivals == sorted(arrivals)
    match = build_trie(requests, outputs=True).match_tokens
    for index, request in enumerate(requests):
        assert request.prompt.num_known_tokens == request.num_prompt_tokens > 0
        assert request.output.num_known_tokens == request.num_output_tokens > 0
        assert match[index] < request.num_prompt_tokens  # something is always new
        if request.previous is not None:
            before = requests[request.previous]
            assert before.session_id == request.session_id
            # Sent after the answer to the turn before, at the assumed speed of decoding.
            gap_s = 0.02 * before.num_output_tokens + request.delay_s
            assert request.arrival_s - before.arrival_s == pytest.approx(gap_s)


@pytest.mark.parametrize("name", GENERATORS)
def test_seeds_decide_all(name: str) -> None:
    one, same, other = (generate(name, seed) for seed in (1, 1, 2))
    lengths = [[r.num_prompt_tokens for r in requests] for requests in (one, same, other)]
    assert lengths[0] == lengths[1] != lengths[2]
    assert [r.arrival_s for r in one] == [r.arrival_s for r in same]
    # Another pace changes when things happen, not what.
    slow = generate(name, 1, arrivals={"process": "poisson", "rate_per_s": 0.01})
    assert sorted(r.num_prompt_tokens for r in slow) == sorted(lengths[0])


def test_chat_turns_contain_the_turn_before() -> None:
    requests = generate("chat", context_limit=4000)
    match = build_trie(requests, outputs=True).match_tokens
    followers = [(i, r) for i, r in enumerate(requests) if r.previous is not None]
    assert followers
    for index, request in followers:
        before = requests[request.previous]
        assert match[index] == before.num_prompt_tokens + before.num_output_tokens
        assert request.num_prompt_tokens + request.num_output_tokens <= 4000


def test_coding_agents_compact_at_the_limit() -> None:
    requests = generate("coding_agent", num_sessions=8, context_limit=30_000)
    match = build_trie(requests, outputs=True).match_tokens
    broken = kept = 0
    for index, request in enumerate(requests):
        if request.previous is None:
            continue
        before = requests[request.previous]
        whole = before.num_prompt_tokens + before.num_output_tokens
        num_added = int(np.diff(request.prompt.ends)[-1]) + request.num_output_tokens
        if whole + num_added > 30_000:  # back to the tools and system prompt, and a summary
            assert match[index] == request.prompt.ends[0]
            assert len(request.prompt) == 3
            broken += 1
        else:
            assert match[index] == whole
            kept += 1
    assert broken > 0
    assert kept > broken


def test_shared_prefixes_follow_zipf() -> None:
    requests = generate("shared_prefix", num_requests=4000, num_prefixes=4, zipf=1.0)
    ids = np.array([int(r.prompt.ids[0]) for r in requests])
    counts = sorted((np.count_nonzero(ids == i) for i in set(ids.tolist())), reverse=True)
    # 1, 1/2, 1/3, 1/4 over their sum 25/12; binomial standard error of the first is 0.0079
    for count, share in zip(counts, [12 / 25, 6 / 25, 4 / 25, 3 / 25], strict=True):
        assert abs(count / 4000 - share) < 4 * 0.0079


def test_few_shot_prompts_part_at_examples() -> None:
    requests = generate("few_shot", num_requests=200, num_tasks=3, min_shots=1, max_shots=4)
    match = build_trie(requests).match_tokens
    for request, found in zip(requests, match.tolist(), strict=True):
        assert 3 <= len(request.prompt) <= 6
        assert found in [0, *request.prompt.ends.tolist()]


def test_lengths_have_the_mean_they_say() -> None:
    rng = np.random.default_rng(1)
    drawn = [Lengths(mean=500, sigma=0.8).draw(rng) for _ in range(20_000)]
    # cv of a lognormal: sqrt(exp(sigma^2) - 1) = 0.947; standard error 500 * 0.947 / 141 = 3.35
    assert abs(np.mean(drawn) - 500) < 4 * 3.35
    assert {Lengths(mean=7).draw(rng) for _ in range(20)} == {7}
    assert max(Lengths(mean=500, sigma=2, max=600).draw(rng) for _ in range(200)) == 600
    assert Popularity(1, 3.0).draw(rng) == 0


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
