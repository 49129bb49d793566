"""Kernel tests run on the GPU where there is one, else in Triton's interpreter on the CPU."""

import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    # Must be set before triton is first imported.
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave GPU-only tests out where there is no GPU."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.fixture(scope="session")
def half_dtype(device: str) -> "torch.dtype":
    """The 16-bit type of matrix products: the interpreter multiplies float16 but not bfloat16."""
    return torch.bfloat16 if device == "cuda" else torch.float16


@pytest.fixture
def filler_rows():
    """Rows that only fill a step up hold what their memory held; the interpreter warns of it."""
    with np.errstate(invalid="ignore", over="ignore"):
        yield


class Stopped(Exception):
    """As if the calibration program were killed."""


@pytest.fixture
def calibrate(monkeypatch, tmp_path, capsys):
    """The program on no GPU: every measured point is noted, and the n-th may stop it.

    run: main of the program with few points, its profile; refused: what it says on its way out.
    """
    from hybridsim.kernels.bench.floors import Floors
    from hybridsim.kernels.bench.timing import Timing
    from hybridsim.kernels.calibrate import program
    from hybridsim.kernels.calibrate.__main__ import main
    from hybridsim.kernels.calibrate.parts import PARTS

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
