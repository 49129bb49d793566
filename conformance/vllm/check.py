"""Runs a job on both sides and says where they differ; counts what was compared."""

from dataclasses import dataclass
from typing import Any

from conformance.vllm.compare import first_difference
from conformance.vllm.oracle import Oracle
from conformance.vllm.ours import Run

Row = dict[str, Any]


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
    oracle: Oracle,
    config: Row,
    trace: list[Row],
    tally: Tally | None = None,
    *,
    digest_every: int = 1,
) -> str | None:
    """Run both sides, ours step by step and with leaps; None when every decision agrees.

    A job that the engine itself refuses or dies of is only counted.
    """
    theirs = oracle.answer(config, trace, digest_every)
    if tally is not None:
        tally.add(theirs)
    if "died" in theirs:
        return None
    stepped = Run(config, trace, oracle.version, digest_every=digest_every).answer()
    found = first_difference(theirs, stepped)
    if found is not None:
        return found
    for row in theirs["requests"]:
        row.pop("max_held", None)
    found = first_difference(theirs, Run(config, trace, oracle.version, leap=True).answer())
    return f"leaping: {found}" if found is not None else None
