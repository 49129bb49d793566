"""Marconi's token hit rates, next to those that its own artifact gives: a table in a file.

    python experiments/marconi_table.py CHAT_TRACE

CHAT_TRACE: `chat_s1_n100_sps1.jsonl.gz`, seeded chats in Marconi's format (1619 requests). Model:
the paper's 7B hybrid. Nothing is left out as warm-up; memory in units of 10^9 bytes.
`results/marconi/published.csv` holds the reference: rates, states and memory share at the end.
"""

import csv
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hybridsim.engines.marconi import MarconiServer, formulas_for
from hybridsim.metrics import summarise
from hybridsim.models import get_model
from hybridsim.request import Request
from hybridsim.traces import read_trace

FOLDER = Path(__file__).resolve().parent.parent / "results" / "marconi"


def run_cell(requests: list[Request], cell: dict[str, str]) -> dict[str, str]:
    """Replay the trace under one row's policy; the row with what came out."""
    formulas = formulas_for(get_model("marconi-7b"))
    capacity_bytes = int(cell["memory_gb"]) * 10**9
    server = MarconiServer(
        capacity_bytes,
        formulas,
        cell["policy"],
        alpha=float(cell["alpha"] or 0),
        variant=cell["variant"] or "corrected",
    )
    records = [server.serve(request) for request in requests]
    server.check()
    rate = summarise(records)["token_hit_rate"]
    cache = server.cache
    held_bytes = cache.num_tokens * formulas.kv_bytes_per_token
    held_bytes += cache.num_states * formulas.state_bytes
    return {
        **{key: cell[key] for key in ("policy", "variant", "memory_gb", "alpha")},
        "token_hit_rate": f"{rate:.5f}",
        "num_states": str(cache.num_states),
        "memory_share": f"{held_bytes / capacity_bytes:.2f}",
        "published_rate": cell["token_hit_rate"],
        "difference": f"{rate - float(cell['token_hit_rate']):+.5f}",
        "tuned_alpha": "" if server.tuned_alpha is None else str(server.tuned_alpha),
    }


def main(
    trace: Path,
    out: Annotated[Path, typer.Option(help="Table to write.")] = FOLDER / "table.csv",
) -> None:
    """Replay every published cell and write the table."""
    requests = read_trace(trace, "marconi").requests
    with (FOLDER / "published.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    rows = [run_cell(requests, cell) for cell in cells]
    with out.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    largest = max(abs(float(row["difference"])) for row in rows)
    Console().print(f"{len(rows)} cells, largest difference {largest:.5f}, written to {out}")


if __name__ == "__main__":
    typer.run(main)
