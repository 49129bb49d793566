"""Any value in any place of an experiment: it runs, or one clear error and nothing is written."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from experiments.helpers import finished_runs, read_summary, tiny
from hybridsim.errors import UserError
from hybridsim.sweep import command
from spoil import spoiled


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def experiments(folder: Path) -> dict[str, dict[str, Any]]:
    """Small ones of every engine and mode. Figures are left out, which take longer than runs."""
    pools = {"kv_tokens": 4096, "state_slots": 9, "page_size": 1}
    policies = {
        "checkpoint": {"name": "every", "tokens": 32},
        "eviction": {"name": "lru", "refresh": "consumed"},
        "thinning": {"name": "path_cap", "max_states": 2},
    }
    timed = {
        "mode": "timed",
        "gpu": {"name": "h200", "efficiency": {"matmul": 0.5}},
        "scheduler": {"max_num_seqs": 4, "max_num_batched_tokens": 512},
        "arrivals": {"mode": "recorded", "rate_scale": 2.0},
    }
    engines = {
        "sglang": {"name": "sglang-0.5.23", "track_interval": 64, "max_states_per_path": -1},
        "vllm": {"name": "vllm-0.33.0", "retention": 0, "spec_k": 1, "max_model_len": 4096},
        "marconi": {"name": "marconi", "policy": "v3", "alpha": 1.0},
    }
    small = {"memory": "1GiB"}
    kinds = {
        "replay": {"cache": {"kv_tokens": 64, "state_slots": 2, **policies}},
        "timed": {"cache": {"layout": "shared", "memory": "64MiB"}, **timed},
        "sglang": {"engine": engines["sglang"], "cache": pools},
        "vllm": {"engine": engines["vllm"], "cache": small},
        "marconi": {"engine": engines["marconi"], "cache": small, "model": "marconi-7b"},
    }
    sweep = {"seed": [0, 1]}
    return {name: tiny(folder, sweep=sweep, **changes) for name, changes in kinds.items()}


KINDS = ("replay", "timed", "sglang", "vllm", "marconi")


def run(data: dict[str, Any], folder: Path) -> int:
    shutil.rmtree(folder / "out", ignore_errors=True)
    path = folder / "fuzz.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return command.run(path, (), out_dir=folder / "out", console=Console(quiet=True))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_spoiled_experiment_runs_or_says_why_not(kind, folder, data):
    config = data.draw(spoiled([experiments(folder)[kind]]))
    try:
        code = run(config, folder)
    except UserError as error:
        refused: UserError | None = error
    else:
        refused = None
    if refused is not None:
        assert refused.place
        assert not (folder / "out").exists(), refused
        return
    failed = [path.read_text() for path in (folder / "out").glob("failed/*.txt")]
    assert (code == 0) == (not failed)
    assert all(text.startswith("UserError: ") for text in failed), failed
    assert len(finished_runs(folder / "out")) + len(failed) >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_good_ones_are_good(kind, folder):
    """Else the cases above could fail for another reason than their own."""
    assert run(experiments(folder)[kind], folder) == 0
    assert len(read_summary(folder / "out")) == 2
