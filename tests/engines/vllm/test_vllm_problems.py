"""Published problems of hybrid prefix caching, with the numbers the engines' own code gave.

Issue numbers are those of vllm-project/vllm unless said; expected values are from the spec of vLLM
0.33.0, section 6 (and 2, 4, 5 where no issue is named).
"""

from typing import Any

import pytest
from vllm_workloads import engine, hits, repeated, request, shared_head

from hybridsim.engines.vllm import VLLMEngine

OLD = {"version": "0.27.1"}


def chunk_lengths(served_by: VLLMEngine) -> list[int]:
    assert served_by.last_sequence is not None
    return [length for _, length in served_by.last_sequence.chunks]


def test_42317_chunks_and_hits_of_a_shared_head_of_6000_tokens() -> None:
    served_by = engine(model="qwen3.5-35b-a3b")
    found, chunks = [], []
    for each in shared_head(shared=6000, unique=2000, times=3):
        found.append(served_by.serve(each).num_hit_tokens)
        chunks.append(chunk_lengths(served_by))
    assert found == [0, 0, 5280]
    assert chunks == [[7392, 608], [5280, 2112, 608], [2112, 608]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1792, 1792, 1792]),
        ({**OLD, "spec_k": 3, "retention": None}, [0, 896, 896, 896]),
        ({**OLD, "spec_k": 3, "retention": 0}, [0, 0, 896, 896]),
        ({"spec_k": 3, "eagle_drop": True}, [0, 896, 896, 896]),
    ],
)
def test_45238_a_prompt_of_2528_tokens_four_times(
    options: dict[str, Any], expected: list[int]
) -> None:
    served_by = engine(model="qwen3.5-27b", block_size=896, **options)
    assert hits(served_by, repeated(2528, times=4)) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 17600, 17600]),
        ({"spec_k": 3, "eagle_drop": True, "retention": None}, [0, 16000, 16000]),
        ({**OLD, "spec_k": 3, "retention": 0}, [0, 0, 16000]),
    ],
)
def test_54360_a_prompt_of_18219_tokens(options: dict[str, Any], expected: list[int]) -> None:
    served_by = engine(model="qwen3.5-27b", block_size=1600, **options)
    assert hits(served_by, repeated(18219)) == expected


def test_48401_a_block_of_8320_tokens() -> None:
    served_by = engine(block_size=8320, max_model_len=16384)
    assert hits(served_by, repeated(12816)) == [0, 8320, 8320]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({**OLD, "retention": 0}, [0, 0, 4944]),
        ({**OLD, "retention": None}, [0, 4944, 4944]),
        ({"eagle_drop": True, "retention": 0}, [0, 4944, 4944]),
    ],
)
def test_53595_first_hit_of_7292_tokens_with_three_drafts(
    options: dict[str, Any], expected: list[int]
) -> None:
    served_by = engine(model="qwen3.5-27b", block_size=1648, spec_k=3, **options)
    assert hits(served_by, repeated(7292)) == expected


@pytest.mark.parametrize(("mode", "steps"), [("align", [6, 12, 18]), ("all", [6, 11, 16])])
def test_ascend_16916_a_block_as_large_as_the_budget_serialises(
    mode: str, steps: list[int]
) -> None:
    options: dict[str, Any] = {"block_size": 2048, "max_num_batched_tokens": 2048}
    served_by = engine(mamba_mode=mode, **OLD, **options)
    sequences = [served_by.sequence(request(f"r{i}", [(f"p{i}", 10500)]))[1] for i in range(3)]
    for sequence in sequences:
        served_by.scheduler.add(sequence)
    while served_by.scheduler.has_work:
        served_by.scheduler.complete(served_by.scheduler.schedule())
    assert [sequence.finished_step for sequence in sequences] == steps


@pytest.mark.parametrize(("budget", "expected"), [(1200, 3264), (8192, 0)])
def test_50172_reuse_depends_on_the_token_budget(budget: int, expected: int) -> None:
    served_by = engine(max_num_batched_tokens=budget, retention=1088)
    first = request("first", [("p", 4000), ("q", 2000)])
    fork = request("fork", [("p", 4000), ("r", 500)])
    assert hits(served_by, [first, fork]) == [0, expected]


def test_an_interval_saves_nothing_where_no_chunk_ends() -> None:
    served_by = engine(retention=1088)
    served_by.serve(request("r", [("p", 6000)]))
    assert served_by.last_sequence is not None
    assert served_by.last_sequence.checkpoints == [5984]


def test_a_checkpoint_is_evicted_before_the_attention_blocks_of_its_own_request() -> None:
    served_by = engine(22)
    for name in "ABC":
        served_by.serve(request(name, [(name, 1700)], output=4))
    lost = served_by.last_sequence
    assert lost is not None
    # The first block lost is A's state (sequence 0) in the first state group, at 3 * 544 tokens.
    assert (lost.evictions[0].group, lost.evictions[0].num_tokens) == (1, 1632)
    assert lost.evictions[0].owner == 0
    record = served_by.serve(request("A again", [("A", 1700)], output=4))
    assert (record.num_match_tokens, record.num_hit_tokens) == (1632, 0)
    assert record.miss_reason == "state_evicted"
    assert served_by.last_sequence is not None
    assert served_by.last_sequence.junction == 1632


@pytest.mark.parametrize(
    ("num_blocks", "options", "expected"),
    [
        (16, {"prefix_match_unit": 32}, [0, None]),
        (16, {}, [0, 2176]),
        (17, {"prefix_match_unit": 32}, [0, 2496]),
        (16, {"prefix_match_unit": 32, "reserve_full_isl": False}, [0, 2496]),
    ],
)
def test_a_hit_can_need_more_blocks_than_a_miss(
    num_blocks: int, options: dict[str, Any], expected: list[int | None]
) -> None:
    first = request("first", [("p", 2500)], output=4)
    longer = request("longer", [("p", 2500), ("q", 500)], output=4)
    # The pool is legal: one request of max_model_len needs 6 + 3 * 2 = 12 blocks.
    served_by = engine(num_blocks, max_model_len=3100, check_startup=True, **options)
    assert hits(served_by, [first, longer]) == expected
    cold = engine(num_blocks, max_model_len=3100, **options)
    assert hits(cold, [longer]) == [0]


def test_8320_tokens_a_block_advance_below_the_block() -> None:
    served_by = engine(block_size=8320, max_num_batched_tokens=8192)
    served_by.serve(request("r", [("p", 17000)]))
    assert chunk_lengths(served_by)[:2] == [8192, 128]
