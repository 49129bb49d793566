"""The calibration program given files of something else, or none that it can write."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.calibrate import program  # noqa: E402
from hybridsim.kernels.calibrate.__main__ import main  # noqa: E402
from hybridsim.kernels.calibrate.grids import points  # noqa: E402
from hybridsim.kernels.calibrate.parts import PARTS  # noqa: E402


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
        ("steps.json", {"machine": {"gpu": "G", "commit": "old"}},
         "steps.json.machine: is not that of the profile"),
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


def test_a_model_that_the_card_cannot_hold_is_said_in_one_line(calibrate, monkeypatch):
    def full(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(program, "HybridModel", full)
    error = calibrate.refused()
    assert "gpu: its memory is too small for qwen3.5-0.8b with tp 1; allowed: more ranks" in error
