"""Golden files: jobs with the oracle's answers, so that they can be replayed without the engine."""

from pathlib import Path
from typing import Any

import numpy as np

from conformance.golden import pack_trace, read, unpack_trace, write
from conformance.vllm.check import Tally
from conformance.vllm.compare import first_difference
from conformance.vllm.jobs import random_job
from conformance.vllm.oracle import Oracle
from conformance.vllm.ours import Run

Row = dict[str, Any]
CASES = {"0.33.0": 80, "0.27.1": 50}
NUM_REQUESTS = 30
_INFO = ("block_size", "hash_block_size", "bytes_per_block", "num_blocks", "mode")


def write_golden(directory: Path, out: Path, seed: int) -> str:
    """Ask the oracle in `directory`; a sentence about what was written.

    Of the pool's digests only the last is kept: it depends on all decisions before.
    """
    cases, tally = [], Tally()
    for version, number in CASES.items():
        engine = Oracle(directory, version)
        for case in range(number):
            config, trace = random_job(np.random.default_rng([seed, case]), version, NUM_REQUESTS)
            answer = engine.answer(config, trace)
            tally.add(answer)
            if "died" in answer:
                continue
            answer["steps"] = answer["steps"][-1:]
            answer["info"] = {key: answer["info"][key] for key in _INFO}
            job = {"version": version, "config": config, "trace": pack_trace(trace)}
            cases.append({**job, **answer})
        engine.close()
    write(out, cases)
    return f"{out}: {out.stat().st_size} bytes; {tally}"


def read_golden(path: Path) -> list[Row]:
    """The cases of a golden file, tokens spelled out."""
    return [{**case, "trace": unpack_trace(case["trace"])} for case in read(path)]


def golden_difference(case: Row) -> str | None:
    """The first decision in which hybridsim differs from a golden case, None when none does."""
    ours = Run(case["config"], case["trace"], case["version"]).answer()
    ours["steps"] = ours["steps"][-1:]
    return first_difference(case, ours)
