"""The calibration program on no GPU: stopped or killed, gone on with, and given other files."""

import errno
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.bench.floors import Floors  # noqa: E402
from hybridsim.kernels.bench.timing import Timing  # noqa: E402
from hybridsim.kernels.calibrate import program  # noqa: E402
from hybridsim.kernels.calibrate.__main__ import main  # noqa: E402
from hybridsim.kernels.calibrate.grids import points  # noqa: E402
from hybridsim.kernels.calibrate.parts import PARTS  # noqa: E402


class Stopped(Exception):
    """As if the program were killed."""


@pytest.fixture
def calibrate(monkeypatch, tmp_path, capsys):
    """The program on no GPU: every measured point is noted, and the n-th may stop it."""
    measured, stop_at = [], [0]

    def note(what):
        if len(measured) + 1 == stop_at[0]:
            raise Stopped
        measured.append(what)
        return Timing(1e-3, 0.9e-3, 1.1e-3, 7)

    model = SimpleNamespace()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(program, "HybridModel", lambda *_: model)
    monkeypatch.setattr(program, "describe_model", lambda _: {"state_bytes": 1})
    monkeypatch.setattr(program, "describe_machine", lambda _: {"gpu": "G", "commit": "c"})
    monkeypatch.setattr(program, "measure_floors", lambda: Floors(1.0, 1.0))
    monkeypatch.setattr(program, "measure_launch", dict)
    monkeypatch.setattr(program, "parts_of", lambda _: list(PARTS))
    part = {name: lambda _, at, name=name: SimpleNamespace(calls=(name, at), factor=1.0)
            for name in PARTS}  # fmt: skip
    monkeypatch.setattr(program, "PARTS", part)
    monkeypatch.setattr(program, "time_calls", lambda calls, factor: note(calls))
    monkeypatch.setattr(program, "time_step", lambda model, shape, seed: note(("step", shape)))
    monkeypatch.setattr(program, "sustained_record", lambda model, shape: {"sustained_s": 1e-3})
    monkeypatch.setattr(program, "_SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def run(stop=0, model="qwen3.5-0.8b", held_out=5, out="p.json", held_out_out="steps.json"):
        stop_at[0] = stop
        main([
            "--model", model, "--out", str(tmp_path / out), "--thin", "9",
            "--fit-steps", "4", "--held-out", str(held_out),
            "--held-out-out", str(tmp_path / held_out_out),
        ])  # fmt: skip
        return json.loads((tmp_path / out).read_text())

    def refused(**options):
        """What it says on its way out with exit code 2, in one line."""
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run(**options)
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    return SimpleNamespace(run=run, refused=refused, measured=measured, folder=tmp_path)


@pytest.mark.parametrize("when", ["part", "fit", "held out"])
def test_stopped_in_the_middle_it_goes_on_where_it_was(calibrate, when, capsys):
    """Each point and each step is measured once, and the result is that of one run."""
    num_points = sum(len(points(name, 9)) for name in PARTS)
    stop = {"part": 7, "fit": num_points + 2, "held out": num_points + 4 + 3}[when]
    with pytest.raises(Stopped):
        calibrate.run(stop)
    assert len(calibrate.measured) == stop - 1
    profile = calibrate.run()
    assert len(calibrate.measured) == len(set(calibrate.measured)) == num_points + 4 + 5
    for name in PARTS:
        found = [tuple(point["at"]) for point in profile["operators"][name]["points"]]
        assert found == points(name, 9)
    steps = json.loads((calibrate.folder / "steps.json").read_text())["steps"]
    assert (len(profile["fit_steps"]), len(steps)) == (4, 5)
    assert {path.name for path in calibrate.folder.iterdir()} == {"p.json", "steps.json"}


def test_steps_of_the_fit_are_not_among_the_held_out(calibrate, capsys):
    calibrate.run()
    shapes = [what[1] for what in calibrate.measured if what[0] == "step"]
    assert len(set(shapes)) == 9


@pytest.mark.parametrize("every_s", [0.0, 1e9], ids=["often", "seldom"])
def test_killed_again_and_again_it_comes_to_the_end(calibrate, monkeypatch, every_s):
    """Killed at every seventh point, or where it saves whole parts only, at every twentieth, more
    than a part has: the files are those of one run, byte by byte."""
    monkeypatch.setattr(program, "_SAVE_EVERY_S", every_s)
    stop = 7 if every_s == 0 else 20
    assert max(len(points(name, 9)) for name in PARTS) < 20
    kills = 0
    while True:
        try:
            calibrate.run(stop=len(calibrate.measured) + stop)
            break
        except Stopped:
            kills += 1
    assert kills >= 2
    found = {name: (calibrate.folder / name).read_bytes() for name in ("p.json", "steps.json")}
    calibrate.run(out="again.json", held_out_out="again.steps.json")
    assert (calibrate.folder / "again.json").read_bytes() == found["p.json"]
    assert (calibrate.folder / "again.steps.json").read_bytes() == found["steps.json"]


def in_a_child(run):
    """The signal that ended a process that ran this, 0 for none."""
    process = os.fork()
    if process == 0:
        with suppress(BaseException):
            run()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.parametrize("when", ["writing", "renaming"])
@pytest.mark.parametrize("nth", [1, 5, 40])
def test_killed_while_it_saves_it_leaves_the_last_whole_file(calibrate, monkeypatch, when, nth):
    """SIGKILL after half of the bytes, or before the new file takes the name."""
    saves = []

    def kill_at_last(path, content=b""):
        saves.append(path)
        if len(saves) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(path, content):
        kept(path, content[: len(content) // 2] if len(saves) == nth - 1 else content)
        kill_at_last(path)

    def rename(path, target):
        kill_at_last(path)
        os.replace(path, target)

    kept = Path.write_bytes
    name, patch = {"writing": ("write_bytes", write), "renaming": ("replace", rename)}[when]
    with monkeypatch.context() as patched:
        patched.setattr(Path, name, patch)
        assert in_a_child(calibrate.run) == -signal.SIGKILL
    whole = [calibrate.folder / name for name in ("p.json", "steps.json")]
    assert whole[0].exists() == (nth > 1)
    assert all(json.loads(path.read_text()) for path in whole if path.exists())
    profile = calibrate.run()
    assert sum(len(x["points"]) for x in profile["operators"].values()) == sum(
        len(points(name, 9)) for name in PARTS
    )


def test_on_a_full_disk_it_says_so_and_keeps_the_last_whole_file(calibrate, monkeypatch):
    calibrate.run()
    before = (calibrate.folder / "p.json").read_bytes()

    def full(path, content):
        kept(path, content[:9])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = Path.write_bytes
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        assert "p.json: cannot be written (No space left on device)" in calibrate.refused()
    assert {path.name for path in calibrate.folder.iterdir()} == {"p.json", "steps.json"}
    assert (calibrate.folder / "p.json").read_bytes() == before


def test_a_part_is_of_one_commit(calibrate, monkeypatch):
    """Later code measures an unfinished part anew and leaves a finished one; so it does with a
    part of an older format, which does not name its commit."""
    profile = calibrate.run()
    del profile["sustained"]
    operators = profile["operators"]
    operators["dense"]["points"].pop()
    operators["head"]["points"].pop()
    del operators["head"]["commit"], operators["copy"]["commit"]
    (calibrate.folder / "p.json").write_text(json.dumps(profile))
    monkeypatch.setattr(program, "describe_machine", lambda _: {"gpu": "G", "commit": "later"})
    calibrate.measured.clear()
    found = calibrate.run()
    parts = [name for name, _ in calibrate.measured]
    assert parts == ["dense"] * len(points("dense", 9)) + ["head"] * len(points("head", 9))
    commits = {name: table.get("commit") for name, table in found["operators"].items()}
    assert commits == {name: "c" for name in PARTS} | {
        "dense": "later", "head": "later", "copy": None,
    }  # fmt: skip
    assert len(found["sustained"]) == 3


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("p.json", {"model": "qwen3-next-80b-a3b"}, "p.json: is of qwen3-next-80b-a3b with tp 1; "),
        ("p.json", {"tp": 2}, "is of qwen3.5-0.8b with tp 2; allowed: one of qwen3.5-0.8b with tp"),
        ("p.json", {"format": "other"}, "p.json: is of format 'other'; allowed: hybridsim-profile"),
        ("p.json", {"machine": {"gpu": "H"}}, "p.json.machine.gpu: 'H' is not that of this run"),
        ("p.json", {"machine": {"gpu": "G", "torch": "1"}}, "p.json.machine.torch: '1' is not"),
        ("p.json", {"machine": []}, "p.json.machine: is no mapping"),
        ("p.json", {"operators": []}, "p.json.operators."),
        ("p.json", {"operators": {"dense": {}}}, "p.json.operators.dense: is no part"),
        ("p.json", {"operators": {"dense": {"axes": ["rows"], "points": []}}}, "dense: is no part"),
        ("p.json", {"operators": {"head": {"axes": ["rows"], "points": [{"at": [1, 2]}]}}},
         "p.json.operators.head: is no part"),
        ("p.json", {"fit_steps": {}}, "p.json.fit_steps: is no list"),
        ("p.json", {"fit_steps": [{"chunks": []}]}, "p.json.fit_steps.0: is not the step that is"),
        ("steps.json", {"steps": [3]}, "steps.json.steps.0: is not the step"),
        ("steps.json", {"tp": 4}, "steps.json: is of qwen3.5-0.8b with tp 4"),
        ("steps.json", {"machine": {"gpu": "H"}}, "steps.json.machine.gpu: 'H' is not"),
    ],
)  # fmt: skip
def test_files_of_something_else_are_not_added_to(calibrate, name, changes, says):
    calibrate.run()
    calibrate.measured.clear()
    path = calibrate.folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    before = path.read_bytes()
    assert says in calibrate.refused()
    assert path.read_bytes() == before
    assert not calibrate.measured


def test_steps_of_another_seed_are_not_added_to(calibrate, monkeypatch):
    """Held-out steps of one file are all drawn in one row."""
    calibrate.run(held_out=3)
    calibrate.run(held_out=5)
    monkeypatch.setattr(program, "HELD_OUT_SEED", 5)
    assert "steps.json.steps.0: is not the step that is drawn here" in calibrate.refused(held_out=9)


@pytest.mark.parametrize("name", ["p.json", "steps.json"])
@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", ":1: is not JSON"), (b"[]", ": is no mapping"), (b"{}", ": is no mapping with"),
     (b"\xff", ": is not JSON"), (b'{"model": "qwen3.5', ":1: is not JSON"),
     (b"[" * 9999, ": is not JSON")],
)  # fmt: skip
def test_a_damaged_file_is_named_before_anything_is_measured(calibrate, name, content, says):
    (calibrate.folder / name).write_bytes(content)
    assert f"{name}{says}" in calibrate.refused()
    assert not calibrate.measured
    assert (calibrate.folder / name).read_bytes() == content


def test_a_file_that_cannot_be_written_is_named_before_anything_is_measured(calibrate):
    (calibrate.folder / "steps.json").mkdir()
    assert "steps.json: cannot be written; allowed:" in calibrate.refused()
    assert "/dev/full: cannot be written; allowed:" in calibrate.refused(out="/dev/full")
    (calibrate.folder / "file").write_text("")
    assert "file' is not a folder; allowed:" in calibrate.refused(out="file/p.json")
    assert not calibrate.measured


def test_a_folder_that_is_not_there_is_made(calibrate):
    assert calibrate.run(out="new/deep/p.json")["operators"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"held_out_out": "p.json"}, "--held-out-out: is --out"),
        ({"held_out_out": "x/../p.json"}, "--held-out-out: is --out"),
        ({"held_out": 0}, "--held-out: is 0 beside --held-out-out"),
    ],
)
def test_held_out_steps_go_to_a_file_of_their_own(calibrate, options, says):
    assert says in calibrate.refused(**options)
    assert not calibrate.measured
    assert not list(calibrate.folder.iterdir())


def test_held_out_steps_need_a_file(calibrate, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--model", "qwen3.5-0.8b", "--out", str(calibrate.folder / "p"), "--held-out", "3"])
    assert stopped.value.code == 2
    assert "--held-out-out: is missing; needed for --held-out 3" in capsys.readouterr().err
