"""Makes results/bounds/*.csv: brackets of the best possible hit rate on three traces.

python benchmarks/make_bounds.py --shared ../shared
The chat trace is written anew by the generator beside the reference traces.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from hybridsim.analysis.bound import bracket
from hybridsim.analysis.interval import BoundRules, Problem, interval_problem
from hybridsim.models import get_model
from hybridsim.request import Request
from hybridsim.traces import read_trace

GB, GIB = 10**9, 2**30
COLUMNS = ("memory_bytes", "insertion", "lower", "upper", "width", "ideal", "cpu_seconds")
INSERTIONS = ("forced", "bypass")


def chat(shared: Path) -> list[Request]:
    """100 sessions of Marconi's format, seed 1, as the generator writes them."""
    with tempfile.TemporaryDirectory() as folder:
        script = (shared / "traces" / "generate_marconi_format.py").resolve()
        subprocess.run([sys.executable, str(script)], cwd=folder, check=True, capture_output=True)
        path = Path(folder) / "marconi_runs" / "traces" / "chat_s1_n100_sps1.jsonl.gz"
        return read_trace(path, "marconi").requests


def problem_of(
    requests: list[Request], model_name: str, insertion: str, *, any_cache: bool
) -> Problem:
    """any_cache: Marconi's simulator keeps the last generated token and may hit whole prompts."""
    model = get_model(model_name)
    rules = BoundRules(
        model.kv_bytes_per_token,
        model.state_bytes,
        last_output=any_cache,
        caps_last_token=not any_cache,
        insertion="forced" if insertion == "forced" else "bypass",
    )
    return interval_problem(requests, rules)


def rows(
    requests: list[Request], model_name: str, sizes: Iterable[int], *, any_cache: bool = False
) -> Iterable[tuple[object, ...]]:
    """A row for each insertion and size."""
    for insertion in INSERTIONS:
        problem = problem_of(requests, model_name, insertion, any_cache=any_cache)
        for size in sizes:
            start_s = time.process_time()
            found = bracket(problem, size)
            took_s = time.process_time() - start_s
            values = (found.lower, found.upper, found.width, found.ideal)
            yield (size, insertion, *(f"{value:.5f}" for value in values), f"{took_s:.1f}")


def write(path: Path, table: Iterable[tuple[object, ...]]) -> None:
    """Write and show a table as it grows."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in table:
            writer.writerow(row)
            file.flush()
            print(path.stem, *row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=Path("..") / "shared")
    parser.add_argument("--out", type=Path, default=Path("results") / "bounds")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    sizes = [GIB << power for power in range(8)]
    chat_sizes = [gb * GB for gb in (2, 5, 10, 20)]
    write(
        options.out / "chat-marconi-7b.csv",
        rows(chat(options.shared), "marconi-7b", chat_sizes, any_cache=True),
    )
    traces = options.shared / "traces"
    conversation = read_trace(traces / "mooncake_conversation.jsonl", "mooncake").requests
    write(options.out / "conversation-qwen3.5-0.8b.csv", rows(conversation, "qwen3.5-0.8b", sizes))
    weka = read_trace(traces / "weka_cc_traces_710.jsonl.xz", "weka", first=8000).requests
    write(options.out / "weka-first-8000-qwen3.5-0.8b.csv", rows(weka, "qwen3.5-0.8b", sizes))
    weka = read_trace(traces / "weka_cc_traces_710.jsonl.xz", "weka").requests
    write(options.out / "weka-qwen3.5-0.8b.csv", rows(weka, "qwen3.5-0.8b", sizes))


if __name__ == "__main__":
    main()
