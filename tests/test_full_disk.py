"""A machine that takes no more files: exit 2, the file is named, what was finished stays."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.helpers import finished_runs, read_summary, tiny, write_experiment


def hybridsim(
    *arguments: str, cwd: Path, file_bytes: int = resource.RLIM_INFINITY
) -> "subprocess.CompletedProcess[str]":
    """The real program under a limit that refuses files as a full disk does, with an OSError."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.run(
        [sys.executable, "-m", "hybridsim", *arguments],
        cwd=cwd, capture_output=True, text=True, preexec_fn=limit, check=False,
    )  # fmt: skip


def unfinished(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_stops_a_sweep_and_leaves_what_was_finished(tmp_path, jobs):
    path = write_experiment(tmp_path, tiny(tmp_path, sweep={"cache.state_slots": [1, 2]}))
    assert hybridsim("run", str(path), "--out", "out", cwd=tmp_path).returncode == 0
    before = finished_runs(tmp_path / "out")
    assert len(before) == 2
    path = write_experiment(tmp_path, tiny(tmp_path, sweep={"cache.state_slots": [1, 2, 3, 4]}))
    # enough for the experiment and a run's config, too little for its table of requests
    asked = ("run", str(path), "--out", "out", "--resume", "--jobs", jobs)
    ended = hybridsim(*asked, cwd=tmp_path, file_bytes=1500)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("error: out/runs/")
    for part in ("requests.parquet", "cannot be written", "--resume"):
        assert part in ended.stderr
    assert "Traceback" not in ended.stderr
    assert finished_runs(tmp_path / "out") == before
    assert not unfinished(tmp_path / "out")
    assert hybridsim(*asked, cwd=tmp_path).returncode == 0
    assert len(read_summary(tmp_path / "out")) == 4


def test_a_report_that_does_not_fit_leaves_the_older_one(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path))
    report = tmp_path / "results" / "tiny" / "report.html"
    ended = hybridsim("run", str(path), cwd=tmp_path, file_bytes=60_000)
    assert ended.returncode == 2
    assert "report.html: cannot be written" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not report.exists()
    assert not unfinished(tmp_path)
    assert len(read_summary(report.parent)) == len(finished_runs(report.parent)) == 6
    report.write_text("older")
    assert hybridsim("report", "results/tiny", cwd=tmp_path, file_bytes=60_000).returncode == 2
    assert report.read_text() == "older"
    assert hybridsim("report", "results/tiny", cwd=tmp_path).returncode == 0
    assert "plotly" in report.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "generate", "chat", "out.jsonl"),
        ("trace", "convert", "tiny.jsonl", "out.jsonl", "--to", "tokens"),
        ("trace", "stats", "tiny.jsonl", "--json", "out.jsonl"),
        ("model", "ledger", "qwen3.5-0.8b", "--figure", "out.png"),
    ],
)
def test_a_file_that_does_not_fit_is_not_begun(tmp_path, arguments):
    tiny(tmp_path)
    ended = hybridsim(*arguments, cwd=tmp_path, file_bytes=500)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("error: out.")
    assert "written" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.jsonl"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path))
    (tmp_path / "file").write_text("")
    for out in ("file", "file/below", "/proc/none"):
        ended = hybridsim("run", str(path), "--out", out, cwd=tmp_path)
        assert ended.returncode == 2
        assert ended.stderr.startswith(f"error: --out: '{out}'")
