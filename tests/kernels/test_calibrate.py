"""The calibration program: what it imports, its parts, grids and steps."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels.calibrate import allreduce  # noqa: E402
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


@pytest.mark.parametrize("program", ["bench.__main__", "studies"])
def test_benchmarks_and_studies_need_a_gpu_and_a_file_to_write(
    program, monkeypatch, tmp_path, capsys
):
    module = import_module(f"hybridsim.kernels.{program}")
    for has_gpu, says in ((False, "gpu: torch finds no CUDA GPU"), (True, "cannot be written")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpu=has_gpu: has_gpu)
        monkeypatch.setattr(sys, "argv", ["program", "--out", str(tmp_path)])
        with pytest.raises(SystemExit) as stopped:
            module.main()
        assert stopped.value.code == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


def test_the_line_through_all_reduces_is_the_one_they_were_made_of():
    """5 us and 300 GB/s, exactly."""
    num_bytes = [4096, 10**6, 64 * 10**6]
    latency_s, rate = allreduce.fit_line(num_bytes, [5e-6 + n / 300e9 for n in num_bytes])
    assert latency_s == pytest.approx(5e-6)
    assert rate == pytest.approx(300e9)
