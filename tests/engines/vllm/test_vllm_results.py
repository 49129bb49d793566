"""The results that the engines' own code gave (spec of vLLM 0.33.0, section 7), column by column.

Model qwen3.5-0.8b, pool of 200 blocks unless said, 8192 tokens a step. None: never admitted.
"""

from typing import Any

import pytest
from vllm_workloads import engine, hits, multi_turn, repeated, shared_head

OLD = {"version": "0.27.1"}
DROP = {"spec_k": 3, "eagle_drop": True}
COLUMNS: dict[str, dict[str, Any]] = {
    "none": {"mamba_mode": "none"},
    "align": {},
    "exported": {"internal_checkpoint": 64},
    "dense": {"retention": None},
    "unit": {"prefix_match_unit": 32},
    "drop": DROP,
    "lookahead": {"spec_k": 3, "hash_lookahead": 1},
    "all_dense": {**OLD, "mamba_mode": "all", "retention": None},
    "all": {**OLD, "mamba_mode": "all", "retention": 0},
}
NEVER = [None, None, None, None]
HITS: dict[str, dict[str, list[int | None]]] = {
    "a": {
        "none": [0, 0, 0], "align": [0, 1632, 1632], "exported": [0, 1728, 1728],
        "dense": [0, 1632, 1632], "unit": [0, 1984, 1984], "drop": [0, 1120, 1120],
        "lookahead": [0, 1680, 1680], "all_dense": [0, 1632, 1632], "all": [0, 1632, 1632],
    },
    "a2": {
        "none": [0, 0, 0], "align": [0, 1632, 1632], "exported": [0, 1728, 1728],
        "dense": [0, 1632, 1632], "unit": [0, 2144, 2144], "drop": [0, 1120, 1120],
        "lookahead": [0, 1680, 1680], "all_dense": [0, 1632, 1632], "all": [0, 1632, 1632],
    },
    "b": {
        "none": [0, 0, 0, 0], "align": [0, 1088, 1632, 2176], "exported": [0, 1152, 1728, 2304],
        "dense": [0, 1632, 2176, 2176], "unit": [0, 1472, 1984, 2496],
        "drop": [0, 560, 1120, 1680], "lookahead": [0, 1120, 1680, 2240],
        "all_dense": [0, 1632, 2176, 2176], "all": [0, 1088, 1632, 2176],
    },
    "c": {
        "none": [0, 0, 0, 0], "align": [0, 0, 1088, 1088], "exported": [0, 0, 1152, 1152],
        "dense": [0, 0, 1088, 1088], "unit": [0, 0, 1088, 1088], "drop": [0, 0, 560, 560],
        "lookahead": [0, 0, 1120, 1120], "all_dense": [0, 1088, 1088, 1088],
        "all": [0, 0, 1088, 1088],
    },
    "c_14": {
        "none": [0, 0, 0, 0], "align": [0, 0, 0, 0], "exported": [0, 0, 1152, 1152],
        "dense": [0, 0, 0, 0], "unit": [0, 0, 0, 0], "drop": NEVER, "lookahead": NEVER,
        "all_dense": NEVER, "all": NEVER,
    },
    "b_16": {
        "none": [0, 0, 0, 0], "align": [0, 1088, 1632, 2176], "exported": [0, 1152, 1728, 2304],
        "dense": [0, 1632, 2176, 2176], "unit": [0, 1472, 1984, None],
        "all_dense": [0, 1632, 2176, 2176], "all": [0, 1088, None, None],
    },
}  # fmt: skip
REQUESTS = {
    "a": (lambda: repeated(2000), 200),
    "a2": (lambda: repeated(4 * 544), 200),
    "b": (multi_turn, 200),
    "c": (shared_head, 200),
    "c_14": (shared_head, 14),
    "b_16": (multi_turn, 16),
}
EVICTIONS = [
    ("c_14", "align", [0, 8, 10, 10]), ("c_14", "exported", [0, 6, 4, 4]),
    ("b_16", "align", [0, 3, 1, 4]), ("b_16", "exported", [0, 0, 2, 4]),
    ("b_16", "all_dense", [1, 4, 0, 4]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("scenario", "column"), [(s, c) for s, columns in HITS.items() for c in columns]
)
def test_hits_of_the_results_table(scenario: str, column: str) -> None:
    make, num_blocks = REQUESTS[scenario]
    served_by = engine(num_blocks, **COLUMNS[column])
    assert hits(served_by, make()) == HITS[scenario][column]


def test_an_aligned_prompt_hits_from_the_third_sighting_in_0_27_1() -> None:
    served_by = engine(**OLD, retention=0)
    assert hits(served_by, repeated(4 * 544)) == [0, 0, 1632]


@pytest.mark.parametrize(("scenario", "column", "expected"), EVICTIONS)
def test_evictions_of_the_results_table(scenario: str, column: str, expected: list[int]) -> None:
    make, num_blocks = REQUESTS[scenario]
    served_by, counts = engine(num_blocks, **COLUMNS[column]), []
    for each in make():
        served_by.serve(each)
        assert served_by.last_sequence is not None
        counts.append(len(served_by.last_sequence.evictions))
    assert counts == expected


TOGETHER = {
    "align": [0, 0, 1088, 1088], "exported": [0, 0, 1152, 1152], "dense": [0, 0, 1088, 1088],
    "unit": [0, 0, 1088, 1088], "drop": [0, 0, 560, 560], "lookahead": [0, 0, 1120, 1120],
    "all_dense": [0, 1088, 1088, 1088], "all": [0, 0, 1088, 1088],
}  # fmt: skip
TOGETHER_IN_22_BLOCKS = {
    "align": [0, 0, 0, 1088], "exported": [0, 0, 1152, 1152], "dense": [0, 0, 0, 1088],
    "unit": [0, 0, 0, 1088], "drop": [0, 0, 0, 0], "lookahead": [0, 0, 0, 0],
    "all_dense": [0, 1088, 1088, 1088], "all": [0, 0, 1088, 1088],
}  # fmt: skip


@pytest.mark.parametrize("column", TOGETHER)
@pytest.mark.parametrize(("num_blocks", "table"), [(200, TOGETHER), (22, TOGETHER_IN_22_BLOCKS)])
def test_four_requests_at_once(column: str, num_blocks: int, table: dict[str, list[int]]) -> None:
    served_by = engine(num_blocks, **COLUMNS[column])
    records = served_by.run_concurrent(shared_head(), [0, 0, 0, 0])
    served_by.check()
    assert [record.num_hit_tokens for record in records] == table[column]
    if (num_blocks, column) == (22, "align"):
        assert records[3].num_preemptions == 1


def test_blocks_allocated_for_one_prompt_of_2000_tokens() -> None:
    allocated = {}
    for column in ("none", "align", "unit", "drop", "all"):
        served_by = engine(**COLUMNS[column])
        served_by.serve(repeated(2000)[0])
        assert served_by.last_sequence is not None
        allocated[column] = served_by.last_sequence.num_allocated_blocks
    assert allocated == {"none": 7, "align": 10, "unit": 13, "drop": 19, "all": 16}


def test_blocks_allocated_for_a_shared_head() -> None:
    served_by, allocated = engine(**COLUMNS["all_dense"]), []
    for each in shared_head():
        served_by.serve(each)
        assert served_by.last_sequence is not None
        allocated.append(served_by.last_sequence.num_allocated_blocks)
    assert allocated == [20, 12, 12, 12]


def test_mode_all_holds_a_state_for_every_block_of_a_chunk() -> None:
    # 2200 tokens in one chunk: ceil(2200 / 544) = 5 blocks in each of 4 groups.
    served_by = engine(mamba_mode="all", **OLD)
    _, sequence = served_by.sequence(repeated(2200)[0])
    served_by.scheduler.add(sequence)
    served_by.scheduler.schedule()
    assert [group.num_held(sequence) for group in served_by.scheduler.cache.groups] == [5] * 4


def test_a_lookahead_hash_loses_the_block_that_ends_at_a_fork() -> None:
    forked = shared_head(shared=3 * 560)
    assert hits(engine(**COLUMNS["lookahead"]), forked[:3]) == [0, 0, 1120]
    plain = shared_head(shared=3 * 544)
    assert hits(engine(), plain[:3]) == [0, 0, 1632]
