"""Published numbers of the Mooncake conversation trace, from an experiment file to the summary."""

from pathlib import Path

import pytest
from rich.console import Console

from experiments.helpers import read_summary, write_experiment
from hybridsim.sweep import command


def test_the_presets_for_cross_checks_give_the_published_rates(
    shared_dir: Path, tmp_path: Path
) -> None:
    trace = shared_dir / "traces" / "mooncake_conversation.jsonl"
    path = write_experiment(
        tmp_path,
        {
            "name": "cross-check",
            "trace": {"format": "mooncake", "path": str(trace)},
            "model": "llama-3.1-8b",
            "sweep": [
                {
                    "engine": ["block_lru"],
                    "trace.warmup": [0.5],
                    "cache": [{"num_blocks": 8192}, {"num_blocks": 65536}],
                },
                {
                    "engine": [{"name": "research", "compute_last_token": False}],
                    "cache": [{"memory": "unlimited", "page_size": 1}],
                },
            ],
            "plots": [],
        },
    )
    assert command.run(path, [], out_dir=tmp_path / "out", console=Console(quiet=True)) == 0
    small, large, ideal = read_summary(tmp_path / "out")
    # ../shared/spec/policies-and-bounds.md, section 5, to the five digits given there
    assert float(small["token_hit_rate"]) == pytest.approx(0.18820, abs=5e-6)
    assert float(large["token_hit_rate"]) == pytest.approx(0.38365, abs=5e-6)
    # ../shared/traces/README.md: 37.36 % of tokens with an infinite cache
    assert float(ideal["token_hit_rate"]) == pytest.approx(0.3736, abs=5e-5)
    assert ideal["token_hit_rate"] == ideal["ceiling_token_hit_rate"]
