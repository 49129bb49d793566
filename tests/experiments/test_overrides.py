"""`--set` turns one experiment into another: what it takes back, and the figures that then fit."""

from pathlib import Path

import pytest
import yaml
from rich.console import Console

from experiments.helpers import read_summary, tiny, write_experiment
from hybridsim.config import load_experiment
from hybridsim.errors import UserError
from hybridsim.sweep import command

PLOTS = [
    {"x": "cache.state_slots", "y": "token_hit_rate", "line": "cache.checkpoint"},
    {"x": "cache.state_slots", "y": "ttft_s_p50"},
    {"x": "cache.checkpoint", "y": "token_hit_rate"},
    {"kind": "cdf", "y": "ttft_s"},
]
QUICKSTART = Path(__file__).parents[2] / "experiments" / "quickstart.yaml"


def timed(folder: Path) -> Path:
    return write_experiment(folder, tiny(folder, mode="timed", gpu="h200", plots=PLOTS))


def run(path: Path, *overrides: str) -> tuple[set[str], str]:
    """Names of the figures, and what was printed."""
    console = Console(width=200, force_terminal=False)
    with console.capture() as printed:
        assert command.run(path, overrides, out_dir=path.parent / "out", console=console) == 0
    return {file.stem for file in path.parent.glob("out/plots/*.png")}, printed.get()


def test_figures_of_times_are_left_out_of_a_replay_that_was_set(tmp_path):
    figures, printed = run(timed(tmp_path), "mode=replay")
    assert figures == {
        "token_hit_rate-over-cache.state_slots-by-cache.checkpoint",
        "token_hit_rate-over-cache.checkpoint",
    }
    assert "figure 2 of the file is left out: 'ttft_s_p50' cannot be drawn" in printed
    assert "figure 4 of the file is left out: 'cdf' needs times" in printed
    command.report(tmp_path / "out")  # the folder's own file has the same figures


def test_figures_follow_what_is_still_swept(tmp_path):
    figures, printed = run(timed(tmp_path), "cache.checkpoint=null")
    # one line where a line a checkpoint policy was asked for; nothing over an axis that is gone
    assert figures == {
        "token_hit_rate-over-cache.state_slots", "ttft_s_p50-over-cache.state_slots", "cdf-ttft_s",
    }  # fmt: skip
    assert "figure 3 of the file is left out: 'cache.checkpoint' is not swept" in printed
    assert [row["cache.state_slots"] for row in read_summary(tmp_path / "out")] == ["1", "4"]


def test_without_any_figure_left_those_that_fit_are_drawn(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path, mode="timed", gpu="h200", plots=PLOTS[3:]))
    figures, _ = run(path, "mode=replay")
    assert "token_hit_rate-over-cache.state_slots-by-cache.checkpoint" in figures


@pytest.mark.parametrize("override", ["seed=1", "plots=[{kind: cdf}]"])
def test_a_figure_that_never_had_a_sense_is_an_error(tmp_path, override):
    path = write_experiment(tmp_path, tiny(tmp_path, plots=PLOTS[3:]))
    with pytest.raises(UserError, match=r"plots.0.kind: 'cdf' needs times"):
        run(path, override)


def test_null_takes_a_key_of_the_cache_back(tmp_path):
    path = write_experiment(tmp_path, tiny(tmp_path, cache={"kv_tokens": 4096, "page_size": 64}))
    [first, *_] = load_experiment(path, ["cache.page_size=null"]).runs
    assert first.config.cache.page_size == 16


def test_an_override_may_come_before_the_sweep_that_makes_room_for_it(tmp_path):
    path = timed(tmp_path)
    with pytest.raises(UserError, match="the experiment sweeps cache"):
        load_experiment(path, ["cache={memory: 1GiB, state_fraction: 0.5}"])
    new = ["cache={state_fraction: 0.5}", "sweep={seed: [0, 1]}", "cache.memory=1GiB"]
    assert len(load_experiment(path, new).runs) == 2


def test_the_quickstart_can_be_given_to_an_engine():
    asked = ["mode=replay", "engine=vllm-0.33.0"]
    for key in ("cache.state_fraction", "cache.checkpoint"):
        with pytest.raises(UserError, match=f"--set {key}=null"):
            command.run(QUICKSTART, asked, dry_run=True)
        asked.append(f"{key}=null")
    asked.append("sweep.cache.memory=[1GiB, 2GiB]")
    assert command.run(QUICKSTART, asked, dry_run=True, console=Console(quiet=True)) == 0


def test_the_engines_of_the_quickstart_fit_their_file():
    path = QUICKSTART.with_name("quickstart_engines.yaml")
    assert yaml.safe_load(path.read_text())["mode"] == "replay"
    assert command.run(path, (), dry_run=True, console=Console(quiet=True)) == 0
