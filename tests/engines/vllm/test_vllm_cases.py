"""Acceptance cases from public reports that speak of vLLM; expected numbers come from their files.

Old builds are modelled by 0.27.1 (which caches an aligned prompt's last block) and, before forks
were noticed, by `junction: False`.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from vllm_workloads import engine, hits, request

from hybridsim.engines.vllm import (
    Geometry,
    VLLMEngine,
    VLLMOptions,
    build_layout,
    geometry_of,
)  # fmt: skip
from hybridsim.errors import UserError
from hybridsim.models import get_model
from hybridsim.request import Request

Case = dict[str, Any]
OLD = {"version": "0.27.1"}
BLIND = {**OLD, "junction": False}


@pytest.fixture
def load(shared_dir: Path) -> Any:
    def read(number: int) -> Case:
        case: Case = yaml.safe_load((shared_dir / "cases" / f"case_{number:02}.yaml").read_text())
        return case

    return read


def case_engine(case: Case, num_blocks: int = 2000, **options: Any) -> VLLMEngine:
    """An engine with the case's geometry and block size."""
    model, cache = case["model"], case["cache"]
    num_bytes = 2 * model["kv_heads"] * model["head_dim"] * 2
    geometry = Geometry(
        model["attn_layers"], model["state_layers"], num_bytes, model["state_bytes_per_layer"]
    )
    chosen = {"block_size": cache["block"], "max_num_batched_tokens": cache.get("chunk", 8192)}
    settings = VLLMOptions(**{**chosen, "max_model_len": 200_000, **options})
    return VLLMEngine(settings, build_layout(geometry, settings), num_blocks)


def requests_of(rows: list[Case]) -> list[Request]:
    return [
        request(row["id"], [(str(name), length) for name, length in row["prompt"]], row["output"])
        for row in rows
    ]


def test_case_01_lucky_split(load: Any) -> None:
    case = load(1)
    found = hits(case_engine(case, **BLIND), requests_of(case["workload"]["requests"]))
    groups = [found[i : i + 8] for i in range(0, 64, 8)]
    assert groups == [case["expected"]["hit_tokens_per_group"]] * 8
    assert sum(bool(hit) for hit in found) == case["expected"]["requests_with_hit"]
    assert sum(hit or 0 for hit in found) == case["expected"]["hit_tokens_total"]


@pytest.mark.parametrize("version", ["0.27.1", "0.33.0"])
def test_case_03_second_touch_saves_the_fork(load: Any, version: str) -> None:
    case, chunks, lost = load(3), [], []
    served_by = case_engine(case, version=version)
    found = []
    for each in requests_of(case["workload"]["requests"]):
        record = served_by.serve(each)
        found.append(record.num_hit_tokens)
        lost.append(record.num_match_tokens - record.num_hit_tokens)
        chunks.append([length for _, length in served_by.last_sequence.chunks])  # type: ignore[union-attr]
    assert found == case["expected"]["hit_tokens"]
    assert lost == case["expected"]["attention_match_lost"]
    assert chunks[1] == case["expected"]["chunks_r2"]


def test_case_05_a_smaller_budget_makes_accidental_checkpoints(load: Any) -> None:
    case, chunks = load(5), []
    served_by = case_engine(case, **BLIND)
    found = []
    for each in requests_of(case["workload"]["requests"]):
        found.append(served_by.serve(each).num_hit_tokens)
        chunks.append([length for _, length in served_by.last_sequence.chunks])  # type: ignore[union-attr]
    assert found == case["expected"]["hit_tokens"]
    assert chunks == case["expected"]["chunks"]
    wide = case_engine(case, **{**BLIND, "max_num_batched_tokens": 8192})
    assert hits(wide, requests_of(case["workload"]["requests"])) == [0, 0, 0, 0]


def test_case_06_prompts_around_one_block(load: Any) -> None:
    case = load(6)
    for rows, expected in zip(case["workload"]["runs"], case["expected"]["rows"], strict=True):
        assert hits(case_engine(case), requests_of(rows)) == [0, expected["hit"]]


def test_case_07_a_prompt_below_the_block_and_its_controls(load: Any) -> None:
    case = load(7)
    found = [hits(case_engine(case), requests_of(rows))[1] for rows in case["workload"]["runs"]]
    assert found == case["expected"]["hit_tokens_b"]
    extra = case["workload"]["extra_run"]
    served_by = engine(2000, "qwen3.5-27b", max_model_len=60_000)
    again = [request(name, [("p", extra["prompt"])]) for name in "ab"]
    assert hits(served_by, again) == [0, case["expected"]["extra_run_hit"]]


def test_case_09_law_of_the_minimum_prefix(load: Any) -> None:
    case = load(9)
    found = hits(case_engine(case), requests_of(case["workload"]["requests"]))
    assert found == case["expected"]["hit_tokens"]
    for row in case["expected"]["table"]:
        served_by = case_engine(case, block_size=row["block"])
        prompts = [request(f"r{i}", [("sys", row["prefix"]), (f"u{i}", 20)]) for i in range(4)]
        assert hits(served_by, prompts) == row["hits"], row


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"user_block_size": 16}, "hit_544"),
        ({"user_block_size": 64}, "hit_576"),
        ({"block_size": 544, "spec_k": 1, "eagle_drop": True}, "hit_544_one_block_drop"),
    ],
)
def test_case_11_block_size_is_not_portable(load: Any, options: Case, key: str) -> None:
    case = load(11)
    served_by = case_engine(case, **{"block_size": None, **options})
    assert hits(served_by, requests_of(case["workload"]["requests"])) == [
        0,
        case["expected"][key],
    ]
    if "user_block_size" in options:
        assert served_by.layout.block_size in case["expected"]["blocks"]


def test_case_17_published_boot_lines(load: Any) -> None:
    for row in load(17)["expected"]["rows"]:
        geometry = Geometry(1, 3, row["kv_bytes_per_token"], row["state_bytes"])
        layout = build_layout(geometry, VLLMOptions(user_block_size=row["kernel_block"]))
        assert layout.block_size == row["block"], row["config"]
        assert layout.padding_pct == pytest.approx(row["padding_pct"], abs=0.006), row["config"]


def test_case_19_capacity_and_concurrency(load: Any) -> None:
    case = load(19)
    num_blocks, expected = case["cache"]["num_blocks"], case["expected"]
    options = VLLMOptions(mamba_mode="none", max_model_len=case["cache"]["max_model_len"])
    layout = build_layout(geometry_of(get_model("qwen3.5-27b"), options), options)
    assert layout.block_size == case["cache"]["block"]
    assert layout.max_blocks_per_request == expected["blocks_per_max_len_request"]
    concurrency = layout.max_concurrency(num_blocks)
    assert round(concurrency, 2) == expected["max_concurrency"]
    assert int(concurrency * options.max_model_len) == expected["consistent_tokens"]
    assert num_blocks * layout.bytes_per_block == expected["pool_bytes"]
    assert num_blocks // layout.num_groups * layout.block_size == expected["printed_tokens"]
    alone = (num_blocks - layout.num_mamba_groups) * layout.block_size
    assert alone == expected["single_sequence_tokens"]


def test_case_31_two_long_conversations_alternate(load: Any) -> None:
    case = load(31)
    served_by = case_engine(case, num_blocks=case["cache"]["num_blocks"])
    records = [served_by.serve(each) for each in requests_of(case["workload"]["requests"])]
    assert [record.num_hit_tokens for record in records] == case["expected"]["hit_tokens"]
    assert records[2].num_match_tokens > 0


VARIANTS = {
    "cap_then_drop": OLD,
    "margin": {"eagle_drop": True},
    "lookahead_hash_n_minus_1": {"hash_lookahead": 1},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_case_33_one_block_less_under_a_drafter(load: Any, variant: str) -> None:
    case = load(33)
    rows = case["expected"]["rows"]
    for runs, row in zip(case["workload"]["runs"], rows, strict=True):
        drafts = {1648: 7, 1600: 3}[row["block"]]
        options = {"block_size": row["block"], "spec_k": drafts, **VARIANTS[variant]}
        assert hits(case_engine(case, **options), requests_of(runs)) == row[variant], row


def test_case_35_a_fine_match_unit_under_a_drafter(load: Any) -> None:
    case = load(35)
    options = {"prefix_match_unit": case["cache"]["match_unit"], "spec_k": 1}
    faulty, repaired = [], []
    for runs in case["workload"]["runs"]:
        faulty.append(hits(case_engine(case, **OLD, **options), requests_of(runs))[1])
        fixed = case_engine(case, eagle_drop=True, **options)
        repaired.append(hits(fixed, requests_of(runs))[1])
    assert faulty == case["expected"]["faulty_hits"]
    # 0.33.0 reads the whole prompt before it drops a unit, so that a prompt of whole units gets one
    # unit more than the case's ceiling, which is floor((n - 1) / unit) * unit - unit.
    unit = case["cache"]["match_unit"]
    above = [unit if row["prompt"] % unit == 0 else 0 for row in case["expected"]["rows"]]
    ceilings = [row["ceiling"] for row in case["expected"]["rows"]]
    assert repaired == [a + b for a, b in zip(ceilings, above, strict=True)]


def test_case_37_state_blocks_of_a_request_with_drafts(load: Any) -> None:
    # `1 + draft_tokens (vLLM: 4 with 3 drafts)`
    assert load(37)["expected"]["blocks_per_state_group"].startswith("1 + draft_tokens")
    served_by = engine(spec_k=3, mamba_mode="none")
    _, sequence = served_by.sequence(request("r", [("p", 2000)]))
    served_by.scheduler.add(sequence)
    served_by.scheduler.schedule()
    held = [group.num_held(sequence) for group in served_by.scheduler.cache.groups]
    assert held[1:] == [4, 4, 4]


def test_case_43_the_engines_own_cache_floors_to_its_block(load: Any) -> None:
    case = load(43)
    served_by = engine(model="llama-3.1-8b")
    assert served_by.layout.block_size == case["cache"]["block"]
    found = hits(served_by, requests_of(case["workload"]["requests"]))
    assert found == [0, case["expected"]["engine_hit"]]


def test_case_45_a_prompt_that_ends_on_a_block(load: Any) -> None:
    case = load(45)
    for runs, row in zip(case["workload"]["runs"], case["expected"]["rows"], strict=True):
        served_by = engine(model="qwen3.5-35b-a3b", block_size=case["cache"]["block"])
        assert hits(served_by, requests_of(runs))[1] == row["max_host_hit"]


def test_case_49_rerendered_prompt_end(load: Any) -> None:
    case = load(49)
    case["cache"] = {"block": 1056}
    found = hits(case_engine(case), requests_of(case["workload"]["requests"]))
    assert found == [0, case["expected"]["hit_block_1056"]]


def test_case_51_stripped_reasoning_leaves_nothing_to_reuse(load: Any) -> None:
    case = load(51)
    served_by = engine(model="qwen3.5-35b-a3b")
    assert served_by.layout.block_size == 1056
    found = hits(served_by, requests_of(case["workload"]["requests"]))
    assert found[1] == case["expected"]["t2_hit_block1056"]


def test_case_59_hits_of_each_request(load: Any) -> None:
    case = load(59)
    served_by = case_engine(case, **OLD, spec_k=case["model"]["spec_columns"])
    found = hits(served_by, requests_of(case["workload"]["requests"]))
    assert found == case["expected"]["hit_tokens"]
    assert sum(hit or 0 for hit in found) == case["expected"]["total"]


def test_case_63_a_block_larger_than_the_budget(load: Any) -> None:
    case = load(63)
    served_by = engine(
        block_size=case["cache"]["block"],
        max_num_batched_tokens=case["cache"]["chunk"],
        retention=None,
    )
    (each,) = requests_of(case["workload"]["requests"])
    served_by.serve(each)
    assert served_by.last_sequence is not None
    lengths = [length for _, length in served_by.last_sequence.chunks]
    assert lengths == case["expected"]["with_subblock_chunks"]
    assert served_by.last_sequence.checkpoints == case["expected"]["states_at"]


def test_case_65_a_block_larger_than_the_prompts(load: Any) -> None:
    case = load(65)
    served_by = engine(block_size=case["cache"]["block"])
    found = hits(served_by, requests_of(case["workload"]["requests"]))
    assert found == case["expected"]["hit_tokens"]
    bytes_of = case["expected"]["state_bytes"]
    for name, block in case["expected"]["derived_blocks"].items():
        size, kv = name.split("_")[:2]
        kv_bytes = (
            2 * case["model"]["kv_heads"] * case["model"]["head_dim"] * {"fp8": 1, "bf16": 2}[kv]
        )
        layout = build_layout(Geometry(1, 3, kv_bytes, bytes_of[size]), VLLMOptions())
        assert layout.block_size == block
    with pytest.raises(UserError, match="divisors of 2096"):
        engine(block_size=2096, prefix_match_unit=32)
