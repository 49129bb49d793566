"""What --resume may keep: rows of the same code and the same data, whoever named the data."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import hybridsim
from experiments.helpers import read_summary, tiny, write_experiment
from hybridsim import __version__
from hybridsim.cost import efficiency, get_cost_model, price_files
from hybridsim.models import get_model
from hybridsim.sweep import command
from hybridsim.sweep.inputs import APART

PACKAGE = Path(hybridsim.__file__).parent


def files_of(module: str) -> list[Path]:
    """The file of a module of the package, and what runs first when it is imported."""
    path, found = PACKAGE.parent, []
    for part in module.split("."):
        path /= part
        found.append(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))
    return [file for file in found if file.is_file()]


def imported(file: Path) -> list[str]:
    """Modules that a file imports, wherever in it; a name may be a module too."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.split(".")[0] == "hybridsim"]


def test_no_run_imports_what_its_fingerprint_leaves_out():
    todo, seen = ["hybridsim.sweep.execute", "hybridsim.sweep.store"], set()
    while todo:
        for file in files_of(todo.pop()):
            if file not in seen:
                seen.add(file)
                todo += imported(file)
    rooms = {file.relative_to(PACKAGE).parts[0] for file in seen}
    assert {"analysis", "build", "cache", "cost", "engines", "policies", "sim", "traces"} <= rooms
    assert not rooms & APART
    assert all((PACKAGE / name).is_dir() for name in APART)


GPUS = [
    ("h200", 1),
    ("infinite", 1),
    ({"name": "h100", "cost": "infinite"}, 1),
    ({"name": "h100", "efficiency": {"memory": 0.9}}, 2),
    ({"flops_per_s": 1e15, "hbm_bytes_per_s": 2e12}, 1),
    ({"name": "h200", "cost": "measured"}, 1),
    ({"name": "h200", "cost": "measured"}, 4),
    ({"name": "h200", "profile": "own.json"}, 1),
]


@pytest.mark.parametrize(("gpu", "tp"), GPUS)
def test_the_shipped_files_of_a_price_are_those_that_are_read(gpu, tp, tmp_path, monkeypatch):
    """Every reading of a JSON file of the package is noted while the prices are made."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(PACKAGE / "cost" / "profiles" / "h200.qwen3.5-0.8b.json", "own.json")
    name = "qwen3-next-80b-a3b" if tp == 4 else "qwen3.5-0.8b"
    read = set()

    def noting(reader):
        def noted(path, *args, **kwargs):
            read.add(path.resolve())
            return reader(path, *args, **kwargs)

        return noted

    efficiency.measured_efficiency.cache_clear()
    for how in ("read_text", "read_bytes"):
        monkeypatch.setattr(Path, how, noting(getattr(Path, how)))
    get_cost_model(gpu, get_model(name), tp)
    monkeypatch.undo()
    shipped = {path for path in read if path.is_relative_to(PACKAGE)}
    assert set(price_files(gpu, get_model(name), tp)) == shipped


@pytest.fixture
def program(tmp_path):
    """A copy of the package that may be edited, started in a process of its own."""
    copy = tmp_path / "elsewhere"
    skip = shutil.ignore_patterns("kernels", "__pycache__")
    shutil.copytree(PACKAGE, copy / "hybridsim", ignore=skip)

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-m", "hybridsim", "run", *arguments],
            env={**os.environ, "PYTHONPATH": str(copy)},
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return " ".join(ended.stderr.split())

    run.package = copy / "hybridsim"
    return run


def test_rows_of_other_code_or_other_shipped_data_are_made_anew_and_told(tmp_path, program):
    sweep = [
        {"mode": ["replay"]},
        {"mode": ["timed"], "gpu": ["h200", {"name": "h200", "cost": "measured"}]},
    ]
    path = write_experiment(tmp_path, tiny(tmp_path, sweep=sweep))
    asked = (str(path), "--out", "out", "--resume")
    assert "3 runs done, 0 failed" in program(*asked)
    metas = [json.loads(file.read_bytes()) for file in (tmp_path / "out").glob("runs/*/meta.json")]
    assert len({meta["versions"]["code"] for meta in metas}) == 1
    named = {name for meta in metas for name in meta["inputs"]}
    assert {"hybridsim/cost/ceilings.json",
            "hybridsim/cost/profiles/h200.qwen3.5-0.8b.json"} <= named  # fmt: skip

    # an edit of the report changes no run; one of the shipped ceilings those of the roofline
    (program.package / "report" / "draw.py").open("a").write("\n")
    ceilings = program.package / "cost" / "ceilings.json"
    ceilings.write_text(ceilings.read_text() + "\n")
    told = program(*asked)
    assert "1 of 3 runs are made anew: changed since: hybridsim/cost/ceilings.json" in told
    assert "1 runs done, 2 were finished before" in told

    # what an infinite cache keeps is decided by every file of the simulator
    (program.package / "cost" / "roofline.py").open("a").write("\n")
    told = program(*asked)
    assert "3 of 3 runs are made anew: made by other code of hybridsim" in told
    assert "0 runs done" not in told
    assert len(read_summary(tmp_path / "out")) == 3


def test_what_made_a_row_old_is_named(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path, sweep={"cache.state_slots": [1, 2, 3, 4]}))
    out = tmp_path / "out"

    def resumed(*overrides: str) -> str:
        console = Console(record=True, width=400, file=open(os.devnull, "w"))  # noqa: SIM115
        assert command.run(path, overrides, out_dir=out, console=console, resume=True) == 0
        return console.export_text()

    resumed()
    metas = sorted(out.glob("runs/*/meta.json"))
    aged = metas[0].read_text().replace(f'"hybridsim": "{__version__}"', '"hybridsim": "0.0.9"')
    metas[0].write_text(aged)
    metas[1].write_bytes(metas[1].read_bytes()[:-9])
    told = resumed()
    assert f"1 of 4 runs are made anew: made by hybridsim 0.0.9, this is {__version__}" in told
    assert "1 of 4 runs are made anew: damaged" in told
    assert "2 runs done, 2 were finished before" in told
    trace = tmp_path / "tiny.jsonl"
    trace.write_text(trace.read_text() + "\n")
    told = resumed()
    assert f"4 of 4 runs are made anew: changed since: {trace}" in told
    assert "anew" not in resumed()
