"""The program itself: version, help with an example for every command, exit codes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hybridsim import __version__
from hybridsim.cli.app import app


def commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


ALL = list(commands(typer.main.get_command(app)))


def test_the_version_is_the_package_s() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"hybridsim {__version__}\n")


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_help_shows_an_example_of_that_command(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    text = " ".join(result.output.replace("│", " ").split())
    assert "Example: " in text
    assert " ".join(["hybridsim", *path]) in text.split("Example: ")[1]


def test_the_contract_s_options_are_there() -> None:
    result = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"})
    for option in ("--set", "--out", "--jobs", "--executor", "--resume", "--dry-run"):
        assert option in result.output


@pytest.mark.parametrize("arguments", [["fly"], ["run"], ["run", "--no-such-option"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_help_does_not_wait_for_the_heavy_libraries(repo_dir: Path) -> None:
    heavy = ("matplotlib", "plotly", "torch", "simpy")
    code = f"import sys, hybridsim.cli.run; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=repo_dir, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_the_module_is_the_program(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "hybridsim", "run", "missing.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: missing.yaml: no such file")
