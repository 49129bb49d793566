"""Every row of every mode and engine says how far it is from the best possible."""

import json
from math import isfinite
from pathlib import Path

import pytest
from rich.console import Console

from experiments.helpers import finished_runs, read_summary, write_experiment
from hybridsim.sweep import command

CHAT = {"format": "generate", "generator": "chat", "num_sessions": 12}
SGLANG = "sglang-0.5.23"
TIMED = {"mode": "timed", "gpu": "h200", "cache": {"memory": "512MiB", "state_fraction": 0.5}}

# What a case is about -> keys of the experiment beside the trace, the model and the name.
CASES = {
    "replay, split": {"cache": {"memory": "512MiB", "state_fraction": 0.5}},
    "replay, shared": {"cache": {"memory": "512MiB", "layout": "shared"}},
    "replay, requests refused": {"cache": {"kv_tokens": 1600, "state_slots": 3}},
    "replay, unlimited": {"cache": {"memory": "unlimited"}},
    "replay, attention only": {"cache": {"kv_tokens": 8000}, "model": "llama-3.1-8b"},
    "timed, split": TIMED,
    "timed, shared": {**TIMED, "cache": {"memory": "512MiB", "layout": "shared"}},
    "timed, preempted": {
        **TIMED, "cache": {"kv_tokens": 2600, "state_slots": 9}, "arrivals": {"rate_scale": 50},
    },
    "timed, closed loop": {**TIMED, "arrivals": {"mode": "closed_loop"}},
    "timed, serial": {**TIMED, "arrivals": {"mode": "serial"}},
    "timed, unlimited": {**TIMED, "cache": {"memory": "unlimited"}},
    "block_lru": {"engine": "block_lru", "cache": {"num_blocks": 40}},
    "block_lru, unlimited": {"engine": "block_lru", "cache": {"memory": "unlimited"}},
    SGLANG: {"engine": SGLANG, "cache": {"kv_tokens": 6000, "state_slots": 12}},
    "SGLang, requests refused": {"engine": SGLANG, "cache": {"kv_tokens": 1200, "state_slots": 9}},
    "SGLang, int8": {
        "engine": {"name": SGLANG, "int8_ckpt": True},
        "cache": {"kv_tokens": 6000, "state_slots": 6},
    },
    "SGLang, sliding window": {
        "engine": {"name": SGLANG, "sliding_window": 512, "swa_tokens": 3000},
        "cache": {"kv_tokens": 6000, "state_slots": 12},
    },
    "vllm-0.33.0": {"engine": "vllm-0.33.0", "cache": {"num_blocks": 30}},
    "vllm-0.27.1": {"engine": "vllm-0.27.1", "cache": {"num_blocks": 30}},
    "vLLM, prompts too long": {
        "engine": {"name": "vllm-0.33.0", "max_model_len": 2000}, "cache": {"num_blocks": 30},
    },
    **{
        f"marconi, {policy}, {variant}": {
            "engine": {"name": "marconi", "policy": policy, "variant": variant},
            "cache": {"memory": "2GB", "layout": "shared"}, "model": "marconi-7b",
        }
        for policy in ("v1", "v2", "v3", "vllm_plus") for variant in ("artifact", "corrected")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_row_has_a_regret_and_a_bracket_around_it(case: str, tmp_path: Path):
    data = {"trace": CHAT, "model": "qwen3.5-0.8b", "plots": [], **CASES[case], "name": "case"}
    path = write_experiment(tmp_path, data)
    out = tmp_path / "out"
    assert command.run(path, (), out_dir=out, console=Console(quiet=True)) == 0
    (row,) = read_summary(out)
    hit, low, high, regret = (
        float(row[name])
        for name in (
            "token_hit_rate", "feasible_token_hit_rate", "bound_token_hit_rate", "regret",
        )
    )  # fmt: skip
    assert all(isfinite(value) for value in (hit, low, high, regret))
    assert regret == pytest.approx(high - hit)
    assert regret >= -1e-9
    assert hit <= low <= high + 1e-9
    (folder,) = finished_runs(out)
    notes = [
        note
        for note in json.loads((folder / "meta.json").read_text())["assumptions"]
        if "bound" in note
    ]
    assert bool(notes) == any(word in case for word in ("timed", "marconi", "int8", "window"))
    if "refused" in case or "too long" in case:
        assert int(row["num_refused"]) > 0
    if "preempted" in case:
        assert int(row["num_preemptions"]) > 0
