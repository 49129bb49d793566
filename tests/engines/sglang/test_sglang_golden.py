"""The engine's own answers, recorded: every decision of every request must come out the same."""

from pathlib import Path
from typing import Any

import pytest

from conformance.golden import read, unpack_trace
from conformance.sglang.facts import comparable, condensed, our_facts

JOBS = read(Path(__file__).with_name("golden.xz"))


def test_the_recording_is_large_and_half_of_it_evicts() -> None:
    evicting = [job for job in JOBS if any(one.get("evictions") for one in job["facts"])]
    assert sum(len(job["facts"]) for job in JOBS) >= 3000
    assert len(JOBS) >= 100
    assert len(evicting) >= len(JOBS) / 2
    assert {one["outcome"] for job in JOBS for one in job["facts"]} == {
        "served",
        "refused",
        "died",
    }


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job['config']['strategy']}")
def test_decisions_equal_the_engines(job: dict[str, Any]) -> None:
    trace = unpack_trace(job["trace"])
    ours = our_facts(job["config"], trace)
    mine = [condensed(comparable(one, job["config"])) for one in ours]
    for index, (one, engine) in enumerate(zip(mine, job["facts"], strict=True)):
        assert one == engine, f"request {index} of {job['config']}"
