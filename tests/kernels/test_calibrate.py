"""The calibration program: what it imports, its parts, stopping in the middle and going on."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.bench.floors import Floors  # noqa: E402
from hybridsim.kernels.bench.timing import Timing  # noqa: E402
from hybridsim.kernels.calibrate import allreduce, program  # noqa: E402
from hybridsim.kernels.calibrate.__main__ import main  # noqa: E402
from hybridsim.kernels.calibrate.grids import AXES, GRIDS, points  # noqa: E402
from hybridsim.kernels.calibrate.parts import PARTS, TIMED_LAYERS, parts_of  # noqa: E402
from hybridsim.kernels.calibrate.steps import MAX_STEP_TOKENS, draw_step  # noqa: E402
from hybridsim.kernels.model.model import HybridModel  # noqa: E402
from hybridsim.kernels.model.place import Place  # noqa: E402

from .test_model import SMALL  # noqa: E402


def test_it_runs_where_neither_simpy_nor_pydantic_is():
    names = ("simpy", "pydantic", "orjson", "typer", "pandas", "polars")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({names}))\n"
        "from hybridsim.kernels.calibrate import program\n"
        "from hybridsim.kernels.calibrate.options import parser; print(parser().prog)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "python -m hybridsim.kernels.calibrate", done.stderr


def test_every_part_has_a_grid_that_rises_and_can_be_thinned():
    assert set(PARTS) == set(GRIDS) == set(AXES)
    for name, axes in GRIDS.items():
        assert len(axes) == len(AXES[name])
        for axis in axes:
            assert list(axis) == sorted(set(axis))
        assert len(points(name)) == np.prod([len(axis) for axis in axes])
        thin = points(name, thin=4)
        assert set(thin) <= set(points(name))
        assert thin[-1] == points(name)[-1]


def test_drawn_steps_keep_to_the_scheduler_s_budget():
    rng = np.random.default_rng(0)
    for _ in range(300):
        shape = draw_step(rng)
        assert 0 < shape.num_tokens <= MAX_STEP_TOKENS
        assert len(shape.chunks) <= 4
        assert len(shape.contexts) <= 256


@pytest.mark.usefixtures("filler_rows")
@pytest.mark.parametrize("name", ["next", "kimi"])
def test_parts_run_over_their_layers(name, device, half_dtype):
    """2 of each at least: tokens or requests, and sequences, prefixes or contexts."""
    model = HybridModel(SMALL[name], 6, 24, Place(device, half_dtype))
    kinds = {"experts": model.expert_layers, "recurrent": model.recurrent_layers,
             "full": model.attention_layers}  # fmt: skip
    for part in parts_of(model):
        made = PARTS[part](model, (2, 17)[: len(AXES[part])] if "full" in part else (2, 2))
        made.calls[0]()
        layers = kinds.get(part.split("_")[0])
        expected = 1.0 if layers is None else len(layers) / min(TIMED_LAYERS, len(layers))
        assert made.factor == expected
    assert "experts" in parts_of(model)
    assert "experts" not in parts_of(HybridModel(SMALL["dense"], 2, 2, Place("meta")))


class Stopped(Exception):
    """As if the program were killed."""


@pytest.fixture
def calibrate(monkeypatch, tmp_path):
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

    def run(stop=0, model="qwen3.5-0.8b", held_out=5):
        stop_at[0] = stop
        main([
            "--model", model, "--out", str(tmp_path / "p.json"), "--thin", "9",
            "--fit-steps", "4", "--held-out", str(held_out),
            "--held-out-out", str(tmp_path / "steps.json"),
        ])  # fmt: skip
        return json.loads((tmp_path / "p.json").read_text())

    return SimpleNamespace(run=run, measured=measured, folder=tmp_path)


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
    assert not list(calibrate.folder.glob("*.part"))


def test_steps_of_the_fit_are_not_among_the_held_out(calibrate, capsys):
    calibrate.run()
    shapes = [what[1] for what in calibrate.measured if what[0] == "step"]
    assert len(set(shapes)) == 9


def test_a_profile_of_something_else_is_not_overwritten(calibrate, capsys):
    calibrate.run()
    before = (calibrate.folder / "p.json").read_bytes()
    with pytest.raises(SystemExit) as stopped:
        calibrate.run(model="qwen3-next-80b-a3b")
    assert stopped.value.code == 2
    assert "is of qwen3.5-0.8b with tp 1 on G; allowed:" in capsys.readouterr().err
    assert (calibrate.folder / "p.json").read_bytes() == before


@pytest.mark.parametrize("name", ["p.json", "steps.json"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b'{"tp": 1', b"[" * 9999])
def test_a_damaged_file_is_named_before_anything_is_measured(calibrate, capsys, name, content):
    (calibrate.folder / name).write_bytes(content)
    with pytest.raises(SystemExit) as stopped:
        calibrate.run()
    assert stopped.value.code == 2
    assert f"{name}: is no mapping with model, tp, machine, " in capsys.readouterr().err
    assert not calibrate.measured
    assert (calibrate.folder / name).read_bytes() == content


def test_a_file_that_cannot_be_written_is_named_before_anything_is_measured(calibrate, capsys):
    (calibrate.folder / "steps.json").mkdir()
    with pytest.raises(SystemExit) as stopped:
        calibrate.run()
    assert stopped.value.code == 2
    assert "steps.json: cannot be written; allowed:" in capsys.readouterr().err
    assert not calibrate.measured


def test_what_cannot_be_measured_is_said_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for arguments, says in (
        (["--model", "qwen3.5-0.8b"], "gpu: torch finds no CUDA GPU"),
        (["--model", "qwen3.5-0.8b", "--tp", "3"], "tp: 3 does not divide"),
    ):
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--out", str(tmp_path / "p.json")])
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_line_through_all_reduces_is_the_one_they_were_made_of():
    """5 us and 300 GB/s, exactly."""
    num_bytes = [4096, 10**6, 64 * 10**6]
    latency_s, rate = allreduce.fit_line(num_bytes, [5e-6 + n / 300e9 for n in num_bytes])
    assert latency_s == pytest.approx(5e-6)
    assert rate == pytest.approx(300e9)
