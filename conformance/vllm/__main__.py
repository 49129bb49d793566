"""Compare decisions: `python -m conformance.vllm random --oracle DIR --seed 1 --cases 100`."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from conformance.shrink import shrink
from conformance.vllm.check import Tally, difference
from conformance.vllm.golden import write_golden
from conformance.vllm.jobs import Tokens, random_job
from conformance.vllm.oracle import Oracle
from hybridsim.traces import read_trace

Row = dict[str, Any]

app = typer.Typer(help=__doc__, pretty_exceptions_enable=False)
OracleOption = Annotated[Path, typer.Option(help="Folder made by setup_vllm.sh.")]


@app.command("random")
def random_traces(
    oracle: OracleOption,
    version: str = "0.33.0",
    seed: int = 0,
    cases: int = 100,
    requests: int = 30,
) -> None:
    """Random traces; prints the first differing decision and the smallest trace that shows it."""
    engine, tally = Oracle(oracle, version), Tally()
    for case in range(cases):
        config, trace = random_job(np.random.default_rng([seed, case]), version, requests)
        found = difference(engine, config, trace, tally)
        if found is not None:
            small = shrink(trace, partial(_differs, engine, config))
            print(f"case {case}: {found}\nconfig: {config}")
            _print_trace(small)
            print(f"shrunk: {difference(engine, config, small)}")
            raise typer.Exit(1)
    engine.close()
    print(f"{version} seed {seed}: no difference; {tally}")


@app.command("trace")
def real_trace(
    path: Path,
    oracle: OracleOption,
    format: str = "mooncake",
    first: int = 300,
    scale: int = 1,
    version: str = "0.33.0",
    model: str = "qwen3.5-0.8b",
    options: Annotated[str, typer.Option(help="More of the driver's config, as JSON.")] = "{}",
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    digest_every: int = 500,
) -> None:
    """The first requests of a real trace (of one session), with a real model's block size."""
    requests = read_trace(path, format, first=first).requests
    requests = [r for r in requests if session is None or r.session_id == session]
    tokens = Tokens(scale)
    trace = [tokens.row(request) for request in requests]
    longest = max(len(row["tokens"]) + len(row["output"]) for row in trace)
    config = {"model": model, "mamba_mode": "align", "max_model_len": longest + 1}
    config |= json.loads(options)
    engine, tally = Oracle(oracle, version), Tally()
    found = difference(engine, config, trace, tally, digest_every=digest_every)
    engine.close()
    print(f"{version} {path.name}: {found or 'no difference'}; {tally}")
    raise typer.Exit(int(found is not None))


@app.command("golden")
def golden(oracle: OracleOption, out: Path, seed: int = 7) -> None:
    """Write the file that the tests replay without the engine."""
    print(write_golden(oracle, out, seed))


def _differs(oracle: Oracle, config: Row, trace: list[Row]) -> bool:
    return difference(oracle, config, trace) is not None


def _print_trace(trace: list[Row]) -> None:
    for row in trace:
        print({k: v if len(str(v)) < 300 else f"{len(v)} tokens" for k, v in row.items()})


if __name__ == "__main__":
    app()
