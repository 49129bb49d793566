"""Cases from public reports that no engine module covers: research rules and trace readers."""

import json

import pytest
import yaml

from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.errors import UserError
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.request import Request, Spans
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace
from hybridsim.trie import build_trie


def load(shared_dir, number):
    return yaml.safe_load((shared_dir / "cases" / f"case_{number}.yaml").read_text())


def requests_of(rows, marks=()):
    """Equal segment names are equal tokens; a shorter length is a prefix of the longer."""
    names: dict[str, int] = {}
    return [
        Request(
            row["id"],
            Spans.of([(names.setdefault(name, len(names)), size) for name, size in row["prompt"]]),
            Spans.unknown(row["output"]),
            marks=tuple(marks),
        )
        for row in rows
    ]


def attention_only(page_tokens):
    return RadixCache(
        Memory(1, 0, None, None), page_tokens, make_checkpoint("none"), make_eviction("lru")
    )


def test_case_47_a_restored_checkpoint_far_below_the_common_prefix(shared_dir):
    """llama.cpp keeps checkpoints at listed positions: policy `marked`."""
    case = load(shared_dir, 47)
    requests = requests_of(case["workload"]["requests"], case["cache"]["positions"])
    cache = RadixCache(Memory(1, 1, None, None), 1, make_checkpoint("marked"), make_eviction("lru"))
    records = replay(requests, cache)
    assert [record.num_hit_tokens for record in records] == case["expected"]["hit_tokens"]
    lost = records[1].num_match_tokens - records[1].num_hit_tokens
    assert lost == case["expected"]["lost"]


def test_case_53_reuse_does_not_end_at_the_first_chunk(shared_dir):
    case = load(shared_dir, 53)
    found = []
    for run in case["workload"]["runs"]:
        records = replay(requests_of(run), attention_only(case["cache"]["page"]))
        found.append(records[1].num_hit_tokens)
    assert found == case["expected"]["hit_tokens"]


def test_case_55_a_prefix_below_a_block_is_no_hit(shared_dir):
    case = load(shared_dir, 55)
    found = [
        replay(requests_of(run), attention_only(case["cache"]["block"]))[1].num_hit_tokens
        for run in case["workload"]["runs"]
    ]
    assert found == case["expected"]["hit_tokens_b"]


def test_case_56_rows_need_one_id_for_each_started_block(shared_dir, tmp_path):
    case = load(shared_dir, 56)
    for row, is_valid in zip(case["workload"]["rows"], case["expected"]["valid"], strict=True):
        row = {**row, "timestamp": 0, "output_length": 1}
        if row["hash_ids"] == "14 ids":
            row["hash_ids"] = list(range(14))
        path = tmp_path / "trace.jsonl"
        path.write_text(json.dumps(row) + "\n")
        if is_valid:
            [request] = read_trace(path, "mooncake").requests
            last = request.num_prompt_tokens - 512 * (len(request.prompt) - 1)
            if row["input_length"] == 6758:
                assert last == case["expected"]["partial_last_block_tokens_row4"]
        else:
            with pytest.raises(UserError, match=r"trace\.jsonl:1"):
                read_trace(path, "mooncake")


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_case_57_ideal_rates_of_two_public_traces(shared_dir, name):
    expected = load(shared_dir, 57)["expected"][name]
    requests = read_trace(shared_dir / "traces" / f"mooncake_{name}.jsonl", "mooncake").requests
    trie = build_trie(requests)
    assert len(requests) == expected["rows"]
    assert sum(len(request.prompt) for request in requests) == expected["blocks"]
    assert int(trie.match_spans.sum()) == expected["hit_blocks"]
    assert sum(request.num_prompt_tokens for request in requests) == expected["tokens"]
    # full blocks only, and at most n - 1 tokens
    full = sum(
        min(int(match), request.num_prompt_tokens - 1) // 512 * 512
        for match, request in zip(trie.match_tokens, requests, strict=True)
    )
    assert full == expected["token_hits_full_blocks_n_minus_1"]
    assert (
        len({int(request.prompt.ids[0]) for request in requests}) == expected["distinct_first_ids"]
    )
    assert requests[-1].arrival_s == pytest.approx(expected["last_timestamp_ms"] / 1000)
