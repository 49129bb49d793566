"""`python -m hybridsim.kernels.calibrate.allreduce --out FILE`: all-reduces on all GPUs of a host.

One process a GPU, NCCL, bfloat16 averages of a hidden vector a token, in CUDA graphs of several in
a row. Written: medians over replays of the slowest rank, and the line through them.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from hybridsim.kernels.calibrate.options import positive
from hybridsim.kernels.machine import check_out, describe_machine, save_json
from hybridsim.terminal import errors_in_one_line

TOKENS = (1, 4, 16, 64, 256, 1024, 2048, 4096, 8192, 16384)
_CALLS, _REPLAYS = 16, 9


def fit_line(num_bytes: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """(latency_s, bytes_per_s) of seconds = latency_s + bytes / bytes_per_s, in relative terms."""
    rows = np.stack([np.ones(len(seconds)), np.array(num_bytes, dtype=float)], axis=1)
    rows /= np.array(seconds)[:, None]
    (latency_s, per_byte_s), *_ = np.linalg.lstsq(rows, np.ones(len(seconds)), rcond=None)
    return float(latency_s), float(1 / per_byte_s)


def _time_s(x: torch.Tensor) -> float:
    """Median seconds of one all-reduce of x on this rank.

    Averages, not sums: in place, call after call, those stay finite, and move as many bytes.
    """
    for _ in range(3):
        dist.all_reduce(x, dist.ReduceOp.AVG)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            dist.all_reduce(x, dist.ReduceOp.AVG)
    times = []
    for _ in range(_REPLAYS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / _CALLS)
    return float(np.median(times))


def _rank(rank: int, num_ranks: int, hidden: int, out: Path, commit: str) -> None:
    """One process: measures on its GPU; rank 0 writes the file."""
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=num_ranks)
    points: list[dict[str, Any]] = []
    for tokens in TOKENS:
        x = torch.randn(tokens, hidden, device="cuda").bfloat16()
        slowest = torch.tensor([_time_s(x)], device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        points.append({"num_bytes": x.numel() * 2, "seconds": slowest.item()})
    if rank == 0:
        # A ring sends 2 (n - 1) / n of the data from every rank to the next.
        sent = [int(p["num_bytes"] * 2 * (num_ranks - 1) / num_ranks) for p in points]
        latency_s, bytes_per_s = fit_line(sent, [p["seconds"] for p in points])
        result = {"machine": describe_machine(commit), "num_gpus": num_ranks, "hidden": hidden,
                  "latency_s": latency_s, "link_bytes_per_s": bytes_per_s,
                  "points": points}  # fmt: skip
        save_json(out, result)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hybridsim.kernels.calibrate.allreduce")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument(
        "--hidden", type=positive, default=2048, help="channels of a token's vector"
    )
    parser.add_argument("--commit", default="", help="commit of this tree, where git cannot tell")
    options = parser.parse_args()
    count = torch.cuda.device_count()
    if count < 2:
        parser.error(f"{count} GPUs here; allowed: 2 or more")
    with errors_in_one_line():
        check_out(options.out)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29581")
    arguments = (count, options.hidden, options.out, options.commit)
    processes.spawn(_rank, args=arguments, nprocs=count)


if __name__ == "__main__":
    main()
