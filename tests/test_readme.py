"""What the README tells people to type works as it stands."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hybridsim.cli.app import app

README = Path(__file__).resolve().parent.parent / "README.md"
BLOCKS = re.findall(r"^```\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)
LINES = "".join(BLOCKS).replace("\\\n", " ").splitlines()
COMMANDS = [shlex.split(line, comments=True) for line in LINES if line.startswith("hybridsim ")]


def test_every_command_of_the_readme_runs(
    tmp_path: Path, repo_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiments").symlink_to(repo_dir / "experiments")
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) >= 7
    for _, *arguments in COMMANDS:
        if arguments[0] == "run":
            arguments += ["--set", "trace.num_sessions=4"]  # as typed, it takes longer
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, (arguments, result.output)


@pytest.mark.parametrize("page", ["README.md", "results/README.md", "docs/experiments.md"])
def test_every_link_within_the_project_leads_somewhere(page: str, repo_dir: Path) -> None:
    path = repo_dir / page
    for target in re.findall(r"\]\(([^)#]+)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
