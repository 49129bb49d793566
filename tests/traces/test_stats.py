"""Statistics against brute force, and the numbers published for them."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given

from hybridsim.request import Request
from hybridsim.traces import open_trace
from hybridsim.traces.detect import detect_format
from hybridsim.traces.stats import matches_within_sessions, reuse_gaps, trace_stats
from hybridsim.trie import build_trie
from tests.plain import num_common, tokens_of
from tests.traces.helpers import stream, traces


@given(traces())
def test_reuse_equals_brute_force(requests: list[Request]) -> None:
    trie = build_trie(requests)
    tokens = [tokens_of(r.prompt) for r in requests]
    own = matches_within_sessions(trie, [r.session_id for r in requests])
    for i, request in enumerate(requests):
        if request.session_id is None:
            assert own[i] == 0
        else:
            mates = [j for j in range(i) if requests[j].session_id == request.session_id]
            assert own[i] == max((num_common(tokens[i], tokens[j]) for j in mates), default=0)
    arrival_s = np.array([r.arrival_s or 0.0 for r in requests])
    gaps = reuse_gaps(trie, arrival_s)
    expected: dict[int, int] = {}
    for i, mine in enumerate(tokens):
        shared = [num_common(mine, tokens[j]) for j in range(i)]
        for place in range(max(shared, default=0)):
            gap = i - max(j for j in range(i) if shared[j] > place)
            expected[gap] = expected.get(gap, 0) + 1
    found: dict[int, int] = {}
    for gap, count in zip(gaps.requests.tolist(), gaps.num_tokens.tolist(), strict=True):
        found[gap] = found.get(gap, 0) + count
    assert found == expected


@given(traces())
def test_stats_add_up(requests: list[Request]) -> None:
    stats = trace_stats(stream(requests))
    total = sum(r.num_prompt_tokens for r in requests)
    assert stats.num_prompt_tokens == total
    assert stats.num_requests == len(requests)
    assert (stats.span_s is None) == (requests[0].arrival_s is None)
    if stats.reuse is None:
        assert not any(len(r.prompt) for r in requests)
        return
    reuse = stats.reuse
    match = build_trie(requests).match_tokens.tolist()
    assert reuse.token_hit_rate == pytest.approx(sum(match) / total)
    capped = sum(min(m, r.num_prompt_tokens - 1) for m, r in zip(match, requests, strict=True))
    assert reuse.capped_token_hit_rate == pytest.approx(capped / total)
    if reuse.with_outputs_token_hit_rate is not None:
        with_outputs = build_trie(requests, outputs=True).match_tokens.sum()
        assert reuse.with_outputs_token_hit_rate == pytest.approx(with_outputs / total)
    if reuse.within_session is not None:
        assert reuse.within_session + reuse.across_sessions == pytest.approx(reuse.token_hit_rate)
        assert reuse.across_sessions >= -1e-12
    assert orjson.loads(orjson.dumps(stats.as_dict()))["num_requests"] == len(requests)


# name, format, block and token percentages of the reference measurement (rounded as there)
PUBLISHED = [
    ("mooncake_conversation.jsonl", "mooncake", 12_031, 36.64, 37.36),
    ("mooncake_synthetic.jsonl", "mooncake", 3_993, 63.96, 65.12),
]


@pytest.mark.parametrize(("name", "format_name", "num_requests", "blocks", "tokens"), PUBLISHED)
def test_ideal_hit_of_the_real_traces(
    shared_dir: Path, name: str, format_name: str, num_requests: int, blocks: float, tokens: float
) -> None:
    path = shared_dir / "traces" / name
    assert detect_format(path) == format_name
    stats = trace_stats(open_trace(path, format_name))
    assert stats.num_requests == num_requests
    assert round(100 * stats.reuse.block_hit_rate, 2) == blocks
    assert round(100 * stats.reuse.token_hit_rate, 2) == tokens
    assert "Block ids are chained" in " ".join(stats.assumptions)


def test_ideal_hit_of_ragpulse(shared_dir: Path) -> None:
    path = shared_dir / "traces" / "ragpulse"
    assert detect_format(path) == "ragpulse"
    stats = trace_stats(open_trace(path, "ragpulse"))
    assert stats.num_requests == 7_106
    # The published 31.5 % is of the segments' tokens, template tokens left out.
    assert round(100 * stats.reuse.known_token_hit_rate, 1) == 31.5


@pytest.mark.parametrize(
    ("name", "num_requests"),
    [("AzureLLMInferenceTrace_code.csv", 8_819), ("AzureLLMInferenceTrace_conv.csv", 19_366)],
)
def test_azure_files_are_read_whole(shared_dir: Path, name: str, num_requests: int) -> None:
    path = shared_dir / "traces" / name
    assert detect_format(path) == "azure"
    stats = trace_stats(open_trace(path, "azure"))
    assert stats.num_requests == num_requests
    assert stats.reuse is None
    if "code" in name:
        assert stats.prompt_tokens.max == 7_437


def test_a_part_of_weka(shared_dir: Path) -> None:
    """Every prompt of a session repeats nearly all of the one before; nothing crosses sessions."""
    path = shared_dir / "traces" / "weka_cc_traces_710.jsonl.xz"
    assert detect_format(path) == "weka"
    stats = trace_stats(open_trace(path, "weka", first=2_000))
    assert stats.num_requests == 2_000
    assert stats.reuse.across_sessions == pytest.approx(0, abs=1e-12)
    assert stats.reuse.within_session > 0.9


@pytest.mark.slow
def test_all_of_weka_within_two_gib_and_a_minute(shared_dir: Path, tmp_path: Path) -> None:
    path = shared_dir / "traces" / "weka_cc_traces_710.jsonl.xz"
    out = tmp_path / "stats.json"
    code = "from hybridsim.cli import main; main()"
    command = [sys.executable, "-c", code, "trace", "stats", str(path), "--json", str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    stats = orjson.loads(out.read_bytes())
    assert stats["num_requests"] == 46_218
    assert stats["num_sessions"] == 692
    assert stats["dropped"] == {"session that is a copy of an earlier one": 18}
    assert round(100 * stats["reuse"]["token_hit_rate"], 2) == 96.23
    assert after.ru_maxrss < 2 * 2**20  # KiB
    assert after.ru_utime - before.ru_utime < 60
