"""Compare random traces: `python -m conformance.vllm --oracle DIR --seed 1 --cases 100`."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from conformance.generate import TraceShape, random_trace
from conformance.shrink import shrink
from conformance.vllm.compare import first_difference
from conformance.vllm.configs import random_config
from conformance.vllm.oracle import Oracle
from conformance.vllm.ours import Run

Row = dict[str, Any]


def random_job(rng: np.random.Generator, version: str, num_requests: int) -> tuple[Row, list[Row]]:
    """A configuration and a trace that suits it."""
    config = random_config(rng, version)
    block = config["block_size"]
    unit = config.get("prefix_match_unit") or block
    shape = TraceShape(
        grids=(block, unit, config["max_num_batched_tokens"]),
        num_requests=num_requests,
        max_prompt_tokens=int(rng.integers(block, config["max_model_len"] - 80)),
        max_output_tokens=int(rng.choice((8, 40, 80))),
    )
    trace = random_trace(shape, rng)
    if config.get("mode") == "concurrent":
        steps = np.cumsum(rng.integers(0, int(rng.choice((2, 6, 30))), len(trace)))
        for row, step in zip(trace, steps, strict=True):
            row["arrival_step"] = int(step)
    return config, trace


@dataclass(slots=True)
class Tally:
    """What the compared traces contained."""

    requests: int = 0
    requests_evicting: int = 0
    configurations: int = 0
    configurations_evicting: int = 0
    preemptions: int = 0
    stuck: int = 0
    died: int = 0

    def add(self, theirs: Row) -> None:
        """Count one answer of the oracle."""
        self.configurations += 1
        rows = theirs.get("requests", [])
        evicting = sum(bool(row.get("evicted")) for row in rows)
        self.requests += sum("id" in row for row in rows)
        self.requests_evicting += evicting
        self.configurations_evicting += bool(evicting)
        self.preemptions += sum(row.get("preempted", 0) for row in rows)
        self.stuck += sum("error" in row for row in rows)
        self.died += "died" in theirs


def difference(
    oracle: Oracle, config: Row, trace: list[Row], tally: Tally | None = None
) -> str | None:
    """Run both sides, ours step by step and with leaps; None when every decision agrees.

    A trace at which the engine's own assertions fail is compared up to that step.
    """
    theirs = oracle.answer(config, trace)
    if tally is not None:
        tally.add(theirs)
    if "died" in theirs:
        return None
    found = first_difference(theirs, Run(config, trace, oracle.version).answer())
    if found is not None:
        return found
    for row in theirs["requests"]:
        row.pop("max_held", None)
    found = first_difference(theirs, Run(config, trace, oracle.version, leap=True).answer())
    return f"leaping: {found}" if found is not None else None


def _differs(oracle: Oracle, config: Row, trace: list[Row]) -> bool:
    return difference(oracle, config, trace) is not None


def main(
    oracle: Annotated[Path, typer.Option(help="Folder made by setup_vllm.sh.")],
    version: str = "0.33.0",
    seed: int = 0,
    cases: int = 100,
    requests: int = 30,
) -> None:
    """Print the first differing decision and the smallest trace that shows it; exit code 1 then."""
    engine = Oracle(oracle, version)
    tally = Tally()
    for case in range(cases):
        rng = np.random.default_rng([seed, case])
        config, trace = random_job(rng, version, requests)
        found = difference(engine, config, trace, tally)
        if found is not None:
            small = shrink(trace, partial(_differs, engine, config))
            print(f"case {case}: {found}\nconfig: {config}")
            for row in small:
                print({k: v if len(str(v)) < 300 else f"{len(v)} tokens" for k, v in row.items()})
            print(f"shrunk: {difference(engine, config, small)}")
            raise typer.Exit(1)
    engine.close()
    print(f"{version} seed {seed}: no difference; {tally}")


if __name__ == "__main__":
    typer.run(main)
