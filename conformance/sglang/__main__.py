"""Compares SGLang's own cache code with hybridsim on random traces.

python -m conformance.sglang --oracle DIR --requests 20000 --seed 1
python -m conformance.sglang --oracle DIR --requests 3000 --golden tests/engines/sglang/golden.xz
"""

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance.generate import random_trace
from conformance.golden import Job, pack_trace, write
from conformance.sglang.configs import random_config, shape_for, with_pools
from conformance.sglang.facts import Facts, comparable, condensed, our_facts
from conformance.sglang.oracle import Oracle
from conformance.shrink import shrink

Trace = list[dict[str, Any]]


@dataclass(slots=True)
class Tally:
    """What a comparison has covered."""

    requests: int = 0
    configs: int = 0
    with_evictions: int = 0
    died: int = 0
    refused: int = 0
    differing: int = 0
    policies: dict[str, int] = field(default_factory=dict)

    def add(self, config: dict[str, Any], facts: list[Facts]) -> None:
        self.requests += len(facts)
        self.configs += 1
        self.with_evictions += any(one.get("evictions") for one in facts)
        self.died += facts[-1]["outcome"] == "died"
        self.refused += sum(one["outcome"] == "refused" for one in facts)
        window = "+window" if "sliding_window" in config else ""
        name = f"{config['strategy']}{window}/{config.get('eviction_policy', 'lru')}"
        self.policies[name] = self.policies.get(name, 0) + len(facts)


def engine_config(config: dict[str, Any]) -> dict[str, Any]:
    """The options that hybridsim shares; the driver alone has a context length and two cores."""
    return {key: value for key, value in config.items() if key not in ("max_context", "core")}


def first_difference(
    oracle: Oracle, config: dict[str, Any], trace: Trace
) -> tuple[int, Facts, Facts] | None:
    """Index of the first request that differs, the engine's facts and ours."""
    theirs = oracle.facts(config, trace)
    ours = our_facts(engine_config(config), trace)
    for index, (mine, engine) in enumerate(zip(ours, theirs["facts"], strict=False)):
        if comparable(mine, config) != comparable(engine, config):
            return index, engine, mine
    if len(ours) != len(theirs["facts"]):
        return min(len(ours), len(theirs["facts"])), {}, {}
    return None


def report(oracle: Oracle, config: dict[str, Any], trace: Trace) -> None:
    """Shrink a differing trace and print what is left of it."""
    small = shrink(trace, lambda rows: first_difference(oracle, config, rows) is not None)
    found = first_difference(oracle, config, small)
    assert found is not None
    index, engine, ours = found
    print(f"config {config}")
    for row in small[: index + 1]:
        print(f"  {row['id']}: {len(row['tokens'])} tokens + {len(row['output'])}")
        print(f"    {row['tokens'][:12]} ... -> {row['output'][:4]} ...")
    for key in sorted(set(engine) | set(ours)):
        if engine.get(key) != ours.get(key):
            print(f"  {key}:\n    engine    {engine.get(key)}\n    hybridsim {ours.get(key)}")


def random_job(
    rng: np.random.Generator, num_requests: int, window_share: float
) -> tuple[dict[str, Any], Trace]:
    config = random_config(rng, window_share)
    trace = random_trace(shape_for(config, rng, num_requests), rng)
    return with_pools(config, trace, rng), trace


def golden_job(oracle: Oracle, config: dict[str, Any], trace: Trace) -> Job:
    """A trace as far as the engine lived, with its answers."""
    facts = [comparable(one, config) for one in oracle.facts(config, trace)["facts"]]
    return {
        "config": engine_config(config),
        "trace": pack_trace(trace[: len(facts)]),
        "facts": [condensed(one) for one in facts],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", type=Path, required=True, help="folder made by setup_sglang.sh")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--per-config", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--core", choices=("python", "rust"), default="python")
    parser.add_argument("--windows", type=float, default=0.25, help="share with sliding windows")
    parser.add_argument("--golden", type=Path, help="write inputs and the engine's answers here")
    arguments = parser.parse_args()
    rng, tally, started = np.random.default_rng(arguments.seed), Tally(), time.perf_counter()
    jobs: list[Job] = []
    with Oracle(arguments.oracle) as oracle:
        while tally.requests < arguments.requests:
            config, trace = random_job(rng, arguments.per_config, arguments.windows)
            config["core"] = arguments.core
            tally.add(config, our_facts(engine_config(config), trace))
            if arguments.golden:
                jobs.append(golden_job(oracle, config, trace))
            if first_difference(oracle, config, trace) is not None:
                tally.differing += 1
                report(oracle, config, trace)
    if arguments.golden:
        write(arguments.golden, jobs)
    print(tally, f"{time.perf_counter() - started:.0f} s")
    return 1 if tally.differing else 0


if __name__ == "__main__":
    sys.exit(main())
