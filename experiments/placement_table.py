"""Where to put M states, memory counted in sequences: rates next to the published dry run's.

    python experiments/placement_table.py --shared SHARED_TRACE

Synthetic overlaps (uniform, normal) need no file: 1000 prompts of 4096 tokens, 20 sequences kept.
SHARED_TRACE: `shared_s4_n2000_p100_z0.9.jsonl.gz`, 2000 prompts in Marconi's format, 50 kept. The
second half of each is measured. `dp_optimal` plans first after the first half, as the source does.
"""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from hybridsim.analysis.dry_run import dry_run, synthetic_overlaps
from hybridsim.policies import make_checkpoint
from hybridsim.request import Request
from hybridsim.traces import read_trace

FOLDER = Path(__file__).resolve().parent.parent / "results" / "placement"
PARAMETERS = {"every": "tokens", "balanced": "states", "dp_optimal": "states"}


def policy_of(row: dict[str, str], num_warmup: int) -> dict[str, Any]:
    """The policy's mapping, as in a config."""
    policy: dict[str, Any] = {"name": row["policy"]}
    if row["parameter"]:
        policy[PARAMETERS[row["policy"]]] = int(row["parameter"])
    if row["policy"] == "dp_optimal":
        policy["warmup"] = num_warmup
    return policy


def run_row(row: dict[str, str], requests: list[Request]) -> dict[str, str]:
    """The row with what came out."""
    num_warmup = len(requests) // 2
    found = dry_run(
        requests,
        make_checkpoint(policy_of(row, num_warmup)),
        num_sequences=50 if row["workload"] == "shared" else 20,
        warmup_requests=num_warmup,
    )
    return {
        "workload": row["workload"],
        "policy": row["policy"],
        "parameter": row["parameter"],
        "token_hit_rate": f"{found.token_hit_rate:.4f}",
        "published_rate": row["published_rate"],
        "states_per_request": f"{found.num_states_per_request:.1f}",
    }


def workload(name: str, shared: Path | None) -> list[Request]:
    """Requests of one row. Prompts of the shared trace may match whichever came before."""
    if name == "uniform":
        return synthetic_overlaps("uniform")
    if name == "normal":
        return synthetic_overlaps("normal")
    if shared is None:
        return []
    return [replace(x, session_id=None) for x in read_trace(shared, "marconi").requests]


def main(
    shared: Annotated[Path | None, typer.Option(help="The shared-prompt trace.")] = None,
    out: Annotated[Path, typer.Option(help="Table to write.")] = FOLDER / "table.csv",
) -> None:
    """Run every published cell and write the table."""
    with (FOLDER / "published.csv").open(newline="") as file:
        published = list(csv.DictReader(file))
    names = dict.fromkeys(row["workload"] for row in published)
    requests = {name: workload(name, shared) for name in names}
    rows = [run_row(x, requests[x["workload"]]) for x in published if requests[x["workload"]]]
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    num_equal = sum(row["token_hit_rate"] == row["published_rate"] for row in rows)
    Console().print(f"{num_equal} of {len(rows)} cells equal the published ones; written to {out}")


if __name__ == "__main__":
    typer.run(main)
