"""What `hybridsim curve --blocks` does: block LRU at every size, or estimated from a sample."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hybridsim.analysis.blocks import block_curve
from hybridsim.analysis.inputs import Subject, TraceSource, Wish
from hybridsim.analysis.shards import read_samples
from hybridsim.analysis.show import MOST_ROWS, curve_sizes, round_sizes, write_rows
from hybridsim.units import percent

_NUM_SEEDS = 8


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


def run_sample(path: Path, wish: Wish, rate: float, out_dir: Path, console: Console) -> None:
    """Block LRU estimated from a share of the blocks, with a 95 % bar over seeds.

    The trace streams and is never held as a whole; a warm-up takes a second reading, to count.
    """
    source = TraceSource.of(path, wish)
    num_warmup = int(sum(1 for _ in source.requests()) * source.warmup) if source.warmup else 0
    samples = read_samples(source.requests(), rate, range(_NUM_SEEDS), num_warmup=num_warmup)
    sizes = [2**e for e in range(samples.num_blocks.bit_length())][-MOST_ROWS:]
    found = samples.estimate(sizes)
    rows: list[Sequence[object]] = [["blocks", "token_hit_rate", "half_width"]]
    rows += zip(sizes, found.rate.tolist(), found.half_width.tolist(), strict=True)
    write_rows(out_dir / "curve.csv", rows, console)
    table = Table("blocks", "token hit rate", "+-", title=f"{source.name}: {rate:g} of the blocks")
    for size, mean, half in zip(sizes, found.rate, found.half_width, strict=True):
        table.add_row(f"{size:,}", percent(mean), f"{half * 100:.2f}")
    Console().print(table)
