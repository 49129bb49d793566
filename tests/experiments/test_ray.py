"""Runs as tasks of a Ray cluster; without the package, a clear refusal."""

import os
import sys
from pathlib import Path

import pytest
from rich.console import Console

from experiments.helpers import finished_runs, tiny, write_experiment
from hybridsim.errors import UserError
from hybridsim.sweep import command
from hybridsim.sweep.events import Finished
from hybridsim.sweep.on_ray import run_ray
from hybridsim.sweep.runner import make_executor


def test_without_ray_the_executor_is_refused_up_front(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--executor: 'ray' needs the package ray.*pip install"):
        make_executor("ray", 1)


def test_ray_writes_what_one_process_writes(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    path = write_experiment(tmp_path, tiny(tmp_path))
    for name, executor in (("local", "local"), ("ray", "ray")):
        code = command.run(
            path,
            [],
            out_dir=tmp_path / name,
            executor_name=executor,
            console=Console(quiet=True),
        )
        assert code == 0
    assert len(finished_runs(tmp_path / "ray")) == 6
    for name in ("summary.csv", "report.html"):
        assert (tmp_path / "ray" / name).exists()
    summaries = [(tmp_path / name / "summary.csv").read_bytes() for name in ("local", "ray")]
    assert summaries[0] == summaries[1]


def test_a_failing_task_takes_only_its_run_with_it() -> None:
    pytest.importorskip("ray")

    def work(index, on_progress):
        if index == 1:
            raise ValueError("no such luck")
        if index == 2:
            os._exit(1)

    events = {}
    run_ray(work, range(4), lambda event: events.__setitem__(event.index, event))
    assert {index for index, event in events.items() if isinstance(event, Finished)} == {0, 3}
    assert events[1].reason == "ValueError: no such luck"
    assert "died" in events[2].reason.lower()
