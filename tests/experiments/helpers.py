"""A tiny trace and experiment whose numbers can be worked out by hand, and ways to run them."""

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

# Tokens: page 16; equal names are equal tokens. 17 output tokens of unknown content each.
REQUESTS = [
    ("A", [["sys", 64], ["u1", 32]]),
    ("B", [["sys", 64], ["u1", 32], ["u2", 32]]),
    ("C", [["sys", 64], ["u3", 16]]),
    ("D", [["sys", 64], ["u4", 48]]),
]
# qwen3.5-0.8b, ../shared/spec/seed-facts.md: 12 KiB of KV a token; states of 18 MiB and
# convolution inputs of 648 KiB.
KV_BYTES = 12 * 1024
STATE_BYTES = 18 * 2**20 + 648 * 1024


def write_trace(folder: Path) -> Path:
    path = folder / "tiny.jsonl"
    rows = [
        {"id": name, "arrival_s": float(at), "prompt": prompt, "output": 17}
        for at, (name, prompt) in enumerate(REQUESTS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tiny(folder: Path, **changes: Any) -> dict[str, Any]:
    """The experiment as a mapping; `changes` replace its keys, None removes one."""
    data = {
        "name": "tiny",
        "mode": "replay",
        "trace": {"format": "segments", "path": str(write_trace(folder))},
        "model": "qwen3.5-0.8b",
        "cache": {"kv_tokens": 4096, "state_slots": 4, "page_size": 16},
        "sweep": {
            "cache.state_slots": [1, 4],
            "cache.checkpoint": ["none", "prompt_end", "branch"],
        },
        "plots": [],
        **changes,
    }
    return {key: value for key, value in data.items() if value is not None}


def write_experiment(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return path


def slow(folder: Path) -> Path:
    """Eight runs of some tenths of a second each: time enough to be interrupted."""
    return write_experiment(
        folder,
        {
            "name": "slow",
            "trace": {"format": "generate", "generator": "chat", "num_sessions": 250},
            "model": "qwen3.5-0.8b",
            "cache": {"memory": "1GiB", "state_fraction": 0.5},
            "sweep": {"seed": list(range(8))},
            "plots": [],
        },
    )


def start(*arguments: str, cwd: Path) -> "subprocess.Popen[str]":
    """The real program in a process of its own, which hears Ctrl-C.

    What a script starts in the background ignores it, and so do the children of that.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "hybridsim", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def read_summary(folder: Path) -> list[dict[str, str]]:
    with (folder / "summary.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def finished_runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("runs/[!.]*/meta.json"))
