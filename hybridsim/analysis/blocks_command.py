"""What `hybridsim curve --blocks` does: block LRU at every size, or estimated from a sample."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hybridsim.analysis.blocks import block_curve
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.shards import estimate
from hybridsim.analysis.show import MOST_ROWS, curve_sizes, percent, round_sizes, write_rows


def run_blocks(subject: Subject, out_dir: Path, console: Console) -> None:
    """The block-LRU preset: attention only, prompts only, capacity in blocks of the trace."""
    curve = block_curve(subject.trace.requests, num_warmup=subject.num_warmup)
    sizes = curve_sizes([curve])
    rates = curve.token_hit_rate(sizes)
    rows = [["blocks", "token_hit_rate"], *zip(sizes.tolist(), rates.tolist(), strict=True)]
    write_rows(out_dir / "curve.csv", rows, console)
    table = Table("blocks", "token hit rate", title=f"{subject.name}: block LRU")
    for size in round_sizes(sizes):
        table.add_row(f"{size:,}", percent(curve.token_hit_rate([size])[0]))
    Console().print(table)


def run_sample(subject: Subject, rate: float, out_dir: Path, console: Console) -> None:
    """Block LRU estimated from a share of the blocks, with a 95 % bar over seeds."""
    requests = subject.trace.requests
    num_blocks = sum(len(request.prompt) for request in requests)
    sizes = [2**e for e in range(num_blocks.bit_length())][-MOST_ROWS:]
    found = estimate(requests, sizes, rate, num_warmup=subject.num_warmup)
    rows: list[Sequence[object]] = [["blocks", "token_hit_rate", "half_width"]]
    rows += zip(sizes, found.rate.tolist(), found.half_width.tolist(), strict=True)
    write_rows(out_dir / "curve.csv", rows, console)
    table = Table("blocks", "token hit rate", "+-", title=f"{subject.name}: {rate:g} of the blocks")
    for size, mean, half in zip(sizes, found.rate, found.half_width, strict=True):
        table.add_row(f"{size:,}", percent(mean), f"{half * 100:.2f}")
    Console().print(table)
