"""Golden files: jobs with the oracle's answers, small enough to commit and to replay anywhere.

Tokens are stored as runs `[first, length]` of consecutive numbers, because fresh content is
numbered consecutively.
"""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from conformance.vllm.check import Tally
from conformance.vllm.compare import first_difference
from conformance.vllm.jobs import random_job
from conformance.vllm.oracle import Oracle
from conformance.vllm.ours import Run

Row = dict[str, Any]
CASES = {"0.33.0": 80, "0.27.1": 50}
NUM_REQUESTS = 30


def runs_of(tokens: list[int]) -> list[int]:
    """Tokens as a flat list first, length, first, length, ..."""
    runs: list[int] = []
    for token in tokens:
        if runs and token == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += [token, 1]
    return runs


def tokens_of(runs: list[int]) -> list[int]:
    """The inverse of `runs_of`."""
    pairs = zip(runs[::2], runs[1::2], strict=True)
    return [token for first, length in pairs for token in range(first, first + length)]


def write_golden(directory: Path, out: Path, seed: int) -> str:
    """Ask the oracle in `directory`; a sentence about what was written."""
    cases, tally = [], Tally()
    for version, number in CASES.items():
        engine = Oracle(directory, version)
        for case in range(number):
            config, trace = random_job(np.random.default_rng([seed, case]), version, NUM_REQUESTS)
            answer = engine.answer(config, trace)
            tally.add(answer)
            if "died" in answer:
                continue
            for row in trace:
                row["tokens"], row["output"] = runs_of(row["tokens"]), runs_of(row["output"])
            answer["steps"] = answer["steps"][-1:]
            answer["info"] = {key: answer["info"][key] for key in _INFO}
            cases.append({"version": version, "config": config, "trace": trace, **answer})
        engine.close()
    out.write_bytes(lzma.compress(json.dumps(cases, separators=(",", ":")).encode(), preset=9))
    return f"{out}: {out.stat().st_size} bytes; {tally}"


_INFO = ("block_size", "hash_block_size", "bytes_per_block", "num_blocks", "mode")


def read_golden(path: Path) -> list[Row]:
    """The cases of a golden file, tokens spelled out."""
    cases: list[Row] = json.loads(lzma.decompress(path.read_bytes()))
    for case in cases:
        for row in case["trace"]:
            row["tokens"], row["output"] = tokens_of(row["tokens"]), tokens_of(row["output"])
    return cases


def golden_difference(case: Row) -> str | None:
    """The first decision in which hybridsim differs from a golden case, None when none does."""
    ours = Run(case["config"], case["trace"], case["version"]).answer()
    ours["steps"] = ours["steps"][-1:]
    return first_difference(case, ours)
