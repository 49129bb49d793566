"""The calibration program stopped, killed or out of disk, and gone on with."""

import errno
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.calibrate import program  # noqa: E402
from hybridsim.kernels.calibrate.grids import points  # noqa: E402
from hybridsim.kernels.calibrate.parts import PARTS  # noqa: E402

from .conftest import Stopped  # noqa: E402


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
