"""The programs that make the shipped numbers: told in one line what is wrong, nothing half-made."""

import json
import shutil
import sys

import pytest

from hybridsim.cost import ceilings, cross, fitting
from hybridsim.cost.page import PART
from hybridsim.cost.profiles import shipped_profiles

NAME = "h200.qwen3.5-0.8b"


@pytest.fixture
def folder(tmp_path, repo_dir):
    """A profile with its held-out steps, and the table of kernels; skipped without results/."""
    results = repo_dir / "results"
    if not (results / "kernels" / "h200.json").exists():
        pytest.skip("the measured results are not in this checkout")
    shutil.copy(shipped_profiles()["h200", "qwen3.5-0.8b", 1], tmp_path)
    shutil.copy(results / "calibration" / f"{NAME}.steps.json", tmp_path)
    shutil.copy(results / "kernels" / "h200.json", tmp_path / "kernels.json")
    return tmp_path


@pytest.fixture
def start(folder, monkeypatch):
    """Runs a program inside the folder."""
    monkeypatch.chdir(folder)

    def run(main, *arguments):
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        main()

    return run


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_profile_is_fitted_again_to_the_digits_that_ship(start, folder, repo_dir):
    before = contents(folder)
    start(fitting.main, f"{NAME}.json", "--out", ".")
    after = contents(folder)
    assert {name: after[name] for name in before} == before
    assert after[f"{NAME}.csv"] == (repo_dir / "results/calibration" / f"{NAME}.csv").read_bytes()
    whole = json.loads((repo_dir / "results/calibration/summary.json").read_text())
    assert json.loads(after["summary.json"]) == {NAME: whole[NAME]}


def edited(folder, name, **changes):
    data = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(data | changes))


FIT = (fitting.main, f"{NAME}.json", "--out", ".")
REFIT = (ceilings.main, "--kernels", "kernels.json", "--out", "ceilings.json")
CROSS = (cross.main, "--kernels", "kernels.json", "--folder", ".")


@pytest.mark.parametrize(
    ("program", "spoil", "says"),
    [
        (FIT, lambda x: (x / f"{NAME}.json").unlink(), f"{NAME}.json: cannot be read"),
        ((fitting.main, "\x1b[31m", "--out", "."), lambda _: None, r"\x1b[31m: cannot be read"),
        (FIT, lambda x: (x / f"{NAME}.json").write_text("{"), f"{NAME}.json:1: is not JSON"),
        (FIT, lambda x: (x / f"{NAME}.json").write_text("{}"), "is not a cost profile"),
        (FIT, lambda x: edited(x, f"{NAME}.json", fit_steps=[]), "0 whole steps; allowed: two"),
        (FIT, lambda x: (x / f"{NAME}.steps.json").unlink(), f"{NAME}.steps.json: cannot be read"),
        (FIT, lambda x: edited(x, f"{NAME}.steps.json", steps=[]), "holds no steps"),
        (FIT, lambda x: edited(x, f"{NAME}.steps.json", tp=2), "is of qwen3.5-0.8b, tp 2, not of"),
        (FIT, lambda x: edited(x, f"{NAME}.steps.json", steps=[{}]), "steps.0.chunks: Field"),
        ((*FIT[:-1], "/dev/null"), lambda _: None, "steps.json: cannot be read"),
        (REFIT, lambda x: (x / "kernels.json").unlink(), "'kernels.json' cannot be read"),
        (REFIT, lambda x: (x / "kernels.json").write_text("[]"), "is no table of kernels"),
        (REFIT, lambda x: edited(x, "kernels.json", rows=[]), "has no row 'conv prefill'"),
        (REFIT, lambda x: edited(x, "kernels.json", rows=[{"op": 3}]), "--kernels.rows.0.op"),
        ((*REFIT[:-1], "no/c.json"), lambda _: None, "no/c.json: cannot be written"),
        ((*REFIT[:-1], "/dev/full"), lambda _: None, "/dev/full: is a device"),
        (CROSS, lambda x: (x / f"{NAME}.steps.json").unlink(), "'.' has no held-out steps"),
        (CROSS, lambda x: edited(x, f"{NAME}.steps.json", model="x"), "is of x, tp 1, not of"),
        ((PART.main, "no.md"), lambda _: None, "no.md: cannot be read"),
        ((PART.main, "kernels.json"), lambda _: None, "kernels.json: no lines '<!-- ceilings"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(start, folder, capsys, program, spoil, says):
    spoil(folder)
    before = contents(folder)
    with pytest.raises(SystemExit) as stopped:
        start(*program)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert contents(folder) == before
