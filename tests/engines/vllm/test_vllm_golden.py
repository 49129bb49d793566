"""Decisions that the engines' own code took on random traces, replayed without the engines."""

from pathlib import Path
from typing import Any

import pytest

from conformance.vllm.golden import golden_difference, read_golden
from conformance.vllm.ours import Run

GOLDEN = Path(__file__).with_name("golden.json.xz")
CASES = read_golden(GOLDEN)


def test_the_golden_file_is_rich_enough() -> None:
    rows = [row for case in CASES for row in case["requests"] if "id" in row]
    evicting = [case for case in CASES if any(r.get("evicted") for r in case["requests"])]
    assert len(CASES) >= 100
    assert len(rows) >= 3000
    assert len(evicting) >= len(CASES) / 2
    assert {case["config"]["mamba_mode"] for case in CASES} == {"align", "none", "all"}
    assert any(row["preempted"] for row in rows)
    assert GOLDEN.stat().st_size < 10**6


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_decision_equals_the_engines(number: int) -> None:
    assert golden_difference(CASES[number]) is None


@pytest.mark.parametrize("number", range(0, len(CASES), 3))
def test_leaping_over_decode_steps_changes_no_decision(number: int) -> None:
    case = CASES[number]
    job = (case["config"], case["trace"], case["version"])
    stepped, leapt = Run(*job).answer(), Run(*job, leap=True).answer()
    assert _without_peaks(leapt["requests"]) == _without_peaks(stepped["requests"])


def _without_peaks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Blocks held at most are recorded only when stepping."""
    return [{k: v for k, v in row.items() if k != "max_held"} for row in rows]
