"""The ways to start the calibration program, on machines that cannot run it."""

import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

# On a machine that only measures, the command line's packages may be missing.
pytest.importorskip("orjson")
pytest.importorskip("simpy")
from typer.testing import CliRunner  # noqa: E402

from hybridsim.cli.app import app  # noqa: E402
from hybridsim.kernels.calibrate import __main__ as program  # noqa: E402
from hybridsim.kernels.calibrate.options import parser  # noqa: E402
from hybridsim.models import CATALOGUE  # noqa: E402


def refusal(capsys, *arguments):
    """What the program says on its way out with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        program.main(arguments)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_without_torch_it_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(program, "NEEDED", ("torch", "no_such_package"))
    said = refusal(capsys, "--model", "qwen3.5-0.8b", "--out", str(tmp_path / "p.json"))
    assert "needs no_such_package: pip install 'hybridsim[gpu]'" in said
    assert not (tmp_path / "p.json").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--model", "qwen3.5-0.8"), "unknown name .* mean 'qwen3.5-0.8b'.*: qwen3.5-0.8b, qwen"),
        (("--model", "llama-3.1-8b"), "in the catalogue but .* without recurrent .*: qwen3.5-0.8b"),
        (("--model", "qwen3.5-0.8b", "--tp", "3"), "3 does not divide"),
        (("--model", "qwen3.5-0.8b", "--tp", "0"), "'0' is not allowed; allowed: whole numbers"),
        (("--model", "qwen3.5-0.8b", "--thin", "x"), "'x' is not allowed"),
        (("--model", "qwen3.5-0.8b", "--fit-steps", "-1"), "'-1' is not allowed|expected one"),
    ],
)
def test_bad_options_are_refused(capsys, tmp_path, arguments, says):
    pytest.importorskip("triton")
    out = tmp_path / "p.json"
    said = refusal(capsys, *arguments, "--out", str(out))
    assert re.search(says, said), said
    assert not out.exists()


def test_every_model_of_the_catalogue_is_measured_or_told_why_not(capsys, tmp_path, monkeypatch):
    """Whatever the program refuses, it calls known; what it allows is what it does not refuse."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    measured, allowed = set(), set()
    for name in CATALOGUE:
        said = refusal(capsys, "--model", name, "--out", str(tmp_path / "p.json"))
        assert "unknown" not in said
        if "no CUDA GPU" in said:
            measured.add(name)
        else:
            assert f"{name} is in the catalogue but cannot be measured: no " in said
            allowed.add(frozenset(said.strip().split("allowed: ")[-1].split(", ")))
    assert allowed == {frozenset(measured)}
    assert {"qwen3.5-0.8b", "kimi-linear-48b-a3b"} <= measured < set(CATALOGUE)


def test_without_a_gpu_it_says_so(capsys, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    said = refusal(capsys, "--model", "qwen3.5-0.8b", "--out", str(tmp_path / "p.json"))
    assert "torch finds no CUDA GPU" in said


def test_help_and_options_need_no_torch():
    code = (
        "import sys; import hybridsim.kernels.calibrate.__main__; "
        "assert not {'torch', 'triton', 'pydantic', 'simpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_hands_all_options_to_the_program(monkeypatch):
    """And its exit code on to the shell: there is one list of options."""
    calls = []

    def fake(arguments):
        calls.append(arguments)
        return SimpleNamespace(wait=lambda: 2)

    monkeypatch.setattr(subprocess, "Popen", fake)
    given = ["--model", "qwen3.5-0.8b", "--tp", "4", "--out", "p.json", "--held-out", "7"]
    assert CliRunner().invoke(app, ["calibrate", *given]).exit_code == 2
    assert calls.pop()[1:] == ["-m", "hybridsim.kernels.calibrate", *given]
    assert vars(parser().parse_args(given))["tp"] == 4


def test_ctrl_c_is_one_line_that_says_how_to_go_on(monkeypatch, capsys, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("triton")

    def stopped(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("hybridsim.kernels.calibrate.program.run", stopped)
    with pytest.raises(SystemExit) as caught:
        program.main(["--model", "qwen3.5-0.8b", "--out", str(tmp_path / "p.json")])
    assert caught.value.code == 130
    said = f"interrupted; the same command goes on from {tmp_path / 'p.json'}\n"
    assert capsys.readouterr().err == said


def test_the_command_lets_the_program_have_the_last_word_after_ctrl_c(tmp_path):
    """Both hear it, as from a terminal; the program takes its time to end."""
    (tmp_path / "slow.py").write_text(
        "import sys, time\n"
        "try:\n    print('ready', flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(1); print('kept', flush=True); sys.exit(130)\n"
    )
    code = (
        "import hybridsim.cli.calibrate as c; c._PROGRAM = 'slow'\n"
        "from hybridsim.cli.app import app; app(['calibrate'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, out, errors) == (130, "kept\n", "")


def test_hybridsim_calibrate_prints_the_programs_help():
    done = CliRunner().invoke(app, ["calibrate", "--help"])
    assert done.exit_code == 0
    assert all(f"--{name}" in done.output for name in ("model", "tp", "out", "held-out", "thin"))
