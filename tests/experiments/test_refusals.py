"""Requests that an engine does not serve, and outputs that it cuts: the run says so in words."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.helpers import finished_runs, read_summary, write_experiment
from hybridsim.sweep import command

# (prompt tokens, output tokens); sum of prompts 42,000
LENGTHS = [(1000, 10), (40_000, 10), (1000, 500)]


def experiment(folder: Path, **changes: Any) -> Path:
    trace = folder / "long.jsonl"
    rows = [
        {"id": f"r{i}", "prompt": [[f"p{i}", prompt]], "output": output}
        for i, (prompt, output) in enumerate(LENGTHS)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base = {
        "name": "long",
        "trace": {"format": "segments", "path": str(trace)},
        "model": "qwen3.5-0.8b",
        "cache": {"memory": "4GiB"},
        "bound": False,
    }
    return write_experiment(folder, base | changes)


def outcome(folder: Path, **changes: Any) -> tuple[dict[str, str], str, str]:
    """The summary's row, what is said in meta.json, and what is printed."""
    path, out = experiment(folder, **changes), folder / "out"
    console = Console(width=200, force_terminal=False)
    with console.capture() as printed:
        assert command.run(path, (), out_dir=out, console=console) == 0
    [row], [run] = read_summary(out), finished_runs(out)
    said = " / ".join(json.loads((run / "meta.json").read_text())["outcome"])
    return row, said, printed.get()


@pytest.mark.parametrize("name", ["vllm-0.33.0", "vllm-0.27.1"])
def test_vllm_takes_every_length_of_the_trace_unless_told_otherwise(tmp_path, name):
    row, said, printed = outcome(tmp_path, engine=name)
    assert row["num_refused"] == "0"
    assert "max_model_len" not in said
    assert "refused" not in printed


def test_vllm_says_which_prompts_and_outputs_were_too_long(tmp_path):
    row, said, printed = outcome(tmp_path, engine={"name": "vllm-0.33.0", "max_model_len": 1200})
    assert row["num_refused"] == "1"
    # 40,000 of 42,000 prompt tokens; the last request may generate 200 of its 500 tokens
    assert "1 of 3 requests were refused, with 95.2% of all prompt tokens" in said
    assert "prompts refused for max_model_len, 1,200 tokens: 1" in said
    assert "outputs cut at max_model_len, 1,200 tokens: 1" in said
    assert "1 of 1 runs refused requests" in printed


def test_vllm_names_the_request_that_blocks_all_behind_it(tmp_path):
    # blocks of 544 tokens: 39 of them hold no prompt of 40,000
    cache = {"num_blocks": 40}
    row, said, _ = outcome(tmp_path, engine="vllm-0.33.0", cache=cache)
    assert row["num_refused"] == "2"
    assert "2 of 3 requests were refused, with 97.6% of all prompt tokens" in said
    assert "request r1 can never be admitted and blocks all behind it" in said


@pytest.mark.parametrize("engine", ["research", "sglang-0.5.23"])
def test_every_engine_says_how_much_it_refused(tmp_path, engine):
    cache = {"kv_tokens": 8192, "state_slots": 8, "page_size": 1}
    row, said, printed = outcome(tmp_path, engine=engine, cache=cache)
    assert row["num_refused"] == "1"
    assert "1 of 3 requests were refused, with 95.2% of all prompt tokens" in said
    assert "1 of 1 runs refused requests" in printed
