"""Every rate that the artifact gives on the seeded chat trace, to 1e-4."""

import csv
import os
import re
from pathlib import Path

import pytest

from hybridsim.engines.marconi import MarconiServer
from hybridsim.metrics import summarise
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.traces import read_trace

TABLE = Path(__file__).resolve().parents[3] / "results" / "marconi" / "published.csv"
with TABLE.open(newline="") as file:
    CELLS = list(csv.DictReader(file))


@pytest.fixture(scope="module")
def requests(shared_dir, tmp_path_factory):
    """The first of the generator's traces: its text up to the other calls, run in a new folder."""
    path = shared_dir / "traces" / "generate_marconi_format.py"
    if not path.is_file():
        pytest.skip("the generator of Marconi traces is not in the reference data")
    calls = re.compile(r"^(chat|swe|shared)\(.*\)\s*$", re.MULTILINE)
    text = path.read_text()
    first = calls.search(text).group()
    folder = tmp_path_factory.mktemp("marconi")
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(calls.sub("", text) + "\n" + first, str(path), "exec"), {})
    finally:
        os.chdir(before)
    (trace,) = folder.rglob("*.jsonl.gz")
    found = read_trace(trace, "marconi").requests
    assert len(found) == 1619  # the reference's count
    assert round(sum(r.num_prompt_tokens for r in found) / 1619) == 3124
    return found


def cell_name(cell):
    return "-".join(cell[key] for key in ("policy", "variant", "memory_gb", "alpha") if cell[key])


@pytest.mark.parametrize("cell", CELLS, ids=cell_name)
def test_published_rate(requests, cell):
    """V2's alpha is part of what is checked: it must find the published one."""
    formulas = MarconiFormulas()
    capacity_bytes = int(cell["memory_gb"]) * 10**9
    is_tuned = cell["policy"] == "v2"
    server = MarconiServer(
        capacity_bytes,
        formulas,
        cell["policy"],
        alpha=0.0 if is_tuned else float(cell["alpha"] or 0),
        variant=cell["variant"] or "corrected",
    )
    records = [server.serve(request) for request in requests]
    server.check()
    rate = summarise(records)["token_hit_rate"]
    assert rate == pytest.approx(float(cell["token_hit_rate"]), abs=1e-4)
    if is_tuned:
        assert server.tuned_alpha == float(cell["alpha"])
    if cell["num_states"]:
        held_bytes = server.cache.num_tokens * formulas.kv_bytes_per_token
        held_bytes += server.cache.num_states * formulas.state_bytes
        assert server.cache.num_states == int(cell["num_states"])
        assert held_bytes / capacity_bytes == pytest.approx(float(cell["memory_share"]), abs=0.0051)
