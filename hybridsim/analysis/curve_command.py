"""What `hybridsim curve` does: from a trace to a table, a CSV and a figure."""

import copy
import csv
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hybridsim.analysis.blocks import block_curve
from hybridsim.analysis.curve import Refresh, lru_curve, lru_surface
from hybridsim.analysis.draw import draw_curves, draw_surface
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.analysis.passes import cached_trie
from hybridsim.analysis.shards import estimate
from hybridsim.analysis.steps import Curve
from hybridsim.errors import UserError
from hybridsim.policies.base import CheckpointPolicy
from hybridsim.request import Int64Array
from hybridsim.trie import Trie
from hybridsim.units import format_bytes

_PER_OCTAVE = 16
_SURFACE_SIZES = 48
_MOST_ROWS = 16


def run_blocks(subject: Subject, out_dir: Path, console: Console) -> None:
    """The block-LRU preset: attention only, prompts only, capacity in blocks of the trace."""
    curve = block_curve(subject.trace.requests, num_warmup=subject.num_warmup)
    sizes = _sizes([curve])
    rates = curve.token_hit_rate(sizes)
    rows = [["blocks", "token_hit_rate"], *zip(sizes.tolist(), rates.tolist(), strict=True)]
    _write(out_dir / "curve.csv", rows, console)
    table = Table("blocks", "token hit rate", title=f"{subject.name}: block LRU")
    for size in _round(sizes):
        table.add_row(f"{size:,}", _percent(curve.token_hit_rate([size])[0]))
    Console().print(table)


def run_sample(subject: Subject, rate: float, out_dir: Path, console: Console) -> None:
    """Block LRU estimated from a share of the blocks, with a 95 % bar over seeds."""
    requests = subject.trace.requests
    num_blocks = sum(len(request.prompt) for request in requests)
    sizes = [2**e for e in range(num_blocks.bit_length())][-_MOST_ROWS:]
    found = estimate(requests, sizes, rate, num_warmup=subject.num_warmup)
    rows: list[Sequence[object]] = [["blocks", "token_hit_rate", "half_width"]]
    rows += zip(sizes, found.rate.tolist(), found.half_width.tolist(), strict=True)
    _write(out_dir / "curve.csv", rows, console)
    table = Table("blocks", "token hit rate", "+-", title=f"{subject.name}: {rate:g} of the blocks")
    for size, mean, half in zip(sizes, found.rate, found.half_width, strict=True):
        table.add_row(f"{size:,}", _percent(mean), f"{half * 100:.2f}")
    Console().print(table)


def run_grid(
    subject: Subject,
    sizes_bytes: Sequence[int],
    state_fraction: float | None,
    out_dir: Path,
    console: Console,
) -> None:
    """Exact replays at some sizes, all checkpoint policies side by side."""
    capacities = [_capacity(subject, size, state_fraction) for size in sizes_bytes]
    trie = _trie(subject)
    rates = {
        label: lru_grid(
            subject.trace.requests, subject.rules, partial(copy.deepcopy, policy), capacities,
            trie=trie,
        ).token_hit_rate(subject.num_warmup)
        for label, policy in subject.policies.items()
    }  # fmt: skip
    rows: list[Sequence[object]] = [["checkpoint", "memory_bytes", "token_hit_rate"]]
    for label, line in rates.items():
        rows += [[label, *point] for point in zip(sizes_bytes, line.tolist(), strict=True)]
    _write(out_dir / "curve.csv", rows, console)
    title = f"{subject.name}, {subject.model.name}: LRU replayed, layout {subject.layout}"
    table = Table("memory", *rates, title=title)
    for index, size in enumerate(sizes_bytes):
        table.add_row(format_bytes(size), *[_percent(line[index]) for line in rates.values()])
    Console().print(table)


def _capacity(subject: Subject, size_bytes: int, state_fraction: float | None) -> Capacity:
    if subject.layout == "shared" or not subject.rules.state_bytes:
        return Capacity(size_bytes)
    if state_fraction is None or not 0 < state_fraction < 1:
        raise UserError("--state-fraction", f"{state_fraction}; layout split needs > 0 and < 1")
    states = int(size_bytes * state_fraction)
    return Capacity(size_bytes - states, states // subject.rules.state_bytes)


def run_shared(subject: Subject, refresh: Refresh, out_dir: Path, console: Console) -> None:
    """A line for each checkpoint policy; those that one pass cannot tell are named and left out."""
    requests, trie = subject.trace.requests, _trie(subject)
    curves: dict[str, Curve] = {}
    refusals: list[UserError] = []
    for label, policy in subject.policies.items():
        try:
            curves[label] = lru_curve(
                requests,
                subject.rules,
                policy,
                num_warmup=subject.num_warmup,
                refresh=refresh,
                trie=trie,
            )
        except UserError as error:
            refusals.append(error)
    _tell_refusals(refusals, bool(curves), console)
    sizes = _sizes(curves.values())
    rates = {label: curve.token_hit_rate(sizes) for label, curve in curves.items()}
    rows: list[Sequence[object]] = [["checkpoint", "memory_bytes", "token_hit_rate"]]
    for label, line in rates.items():
        rows += [[label, *point] for point in zip(sizes.tolist(), line.tolist(), strict=True)]
    _write(out_dir / "curve.csv", rows, console)
    title = f"{subject.name}, {subject.model.name}: LRU, one shared pool"
    draw_curves(out_dir / "curve.png", title, sizes, rates, _ideal(subject, trie))
    console.print(f"wrote {out_dir / 'curve.png'}", markup=False, highlight=False)
    table = Table("memory", *curves, title=title)
    for size in _round(sizes):
        cells = [_percent(curve.token_hit_rate([size])[0]) for curve in curves.values()]
        table.add_row(format_bytes(size), *cells)
    table.add_row("unlimited", *[_percent(curve.ceiling) for curve in curves.values()])
    Console().print(table)


def run_split(subject: Subject, refresh: Refresh, out_dir: Path, console: Console) -> None:
    """A surface for each checkpoint policy: CSV, heat map, and the best split at round sizes."""
    if not subject.model.state_bytes:
        raise UserError("--layout", f"{subject.model.name} has no recurrent state; allowed: shared")
    trie = _trie(subject)
    rows: list[Sequence[object]] = [
        ["checkpoint", "kv_bytes", "state_slots", "state_bytes", "token_hit_rate"]
    ]
    refusals: list[UserError] = []
    for label, policy in subject.policies.items():
        try:
            rows += _surface(subject, label, policy, refresh, trie, out_dir)
        except UserError as error:
            refusals.append(error)
    _tell_refusals(refusals, len(rows) > 1, console)
    _write(out_dir / "curve.csv", rows, console)


def _surface(
    subject: Subject,
    label: str,
    policy: CheckpointPolicy,
    refresh: Refresh,
    trie: Trie,
    out_dir: Path,
) -> list[Sequence[object]]:
    state_bytes = subject.model.state_bytes
    surface = lru_surface(
        subject.trace.requests,
        subject.rules,
        policy,
        num_warmup=subject.num_warmup,
        refresh=refresh,
        trie=trie,
    )
    if not surface.range_slots[1]:
        raise UserError("cache.checkpoint", f"{label} never gives a hit; allowed: another policy")
    kv = _log_spaced(*surface.range_kv_bytes, _SURFACE_SIZES)
    slots = _log_spaced(1, surface.range_slots[1], _SURFACE_SIZES)
    rates = surface.token_hit_rate(kv, slots)
    title = f"{subject.name}, {subject.model.name}, {label}: LRU, KV and state pools"
    name = "surface.png" if len(subject.policies) == 1 else f"surface-{_slug(label)}.png"
    draw_surface(out_dir / name, title, kv, slots * state_bytes, rates)
    table = Table("memory", "best share for states", "state slots", "token hit rate", title=title)
    top = surface.range_kv_bytes[1] + surface.range_slots[1] * state_bytes
    for total in _round(_log_spaced(int(kv[0]) + state_bytes, top, _SURFACE_SIZES)):
        counts, along = surface.along_budget(total, state_bytes)
        best = int(along.argmax())
        share = counts[best] * state_bytes / total
        table.add_row(
            format_bytes(total), f"{share:.3f}", f"{counts[best]:,}", _percent(along[best])
        )
    Console().print(table)
    return [
        [label, int(k), int(s), int(s) * state_bytes, float(rates[i, j])]
        for i, k in enumerate(kv)
        for j, s in enumerate(slots)
    ]


def _trie(subject: Subject) -> Trie:
    return cached_trie(subject.trace.requests, outputs=subject.rules.outputs)


def _ideal(subject: Subject, trie: Trie) -> float:
    """What an infinite cache with states everywhere would hit of the measured requests."""
    sizes = [request.num_prompt_tokens for request in subject.trace.requests]
    limits = np.array(sizes, dtype=np.int64) - int(subject.rules.caps_last_token)
    hits = np.minimum(trie.match_tokens, np.maximum(limits, 0))[subject.num_warmup :]
    return float(hits.sum() / max(sum(sizes[subject.num_warmup :]), 1))


def _sizes(curves: Iterable[Curve]) -> Int64Array:
    """Sizes over the range in which the curves move, evenly spaced in log 2, powers of 2 too."""
    ranges = [curve.range_bytes for curve in curves if curve.range_bytes[1]]
    if not ranges:
        return np.array([1], dtype=np.int64)
    low, high = max(1, min(r[0] for r in ranges)), max(r[1] for r in ranges)
    octaves = np.log2(high / low) if high > low else 1.0
    spaced = _log_spaced(low, high, int(octaves * _PER_OCTAVE) + 2)
    powers = 2 ** np.arange(int(np.log2(low)), int(np.log2(high)) + 1, dtype=np.int64)
    return np.unique(np.concatenate([spaced, powers]))


def _log_spaced(low: int, high: int, count: int) -> Int64Array:
    spaced = np.geomspace(max(low, 1), max(high, low, 1), count)
    return np.unique(np.ceil(spaced).astype(np.int64))


def _round(sizes: Int64Array) -> list[int]:
    """Powers of two within the range, thinned to what fits a screen."""
    powers = [2**e for e in range(int(sizes[0]).bit_length(), int(sizes[-1]).bit_length() + 1)]
    return powers[-_MOST_ROWS:]


def _tell_refusals(refusals: list[UserError], has_result: bool, console: Console) -> None:
    if refusals and not has_result:
        raise refusals[0]
    for error in refusals:
        console.print(f"left out: {error}", markup=False, highlight=False)


def _write(path: Path, rows: Iterable[Sequence[object]], console: Console) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    console.print(f"wrote {path}", markup=False, highlight=False)


def _percent(rate: float) -> str:
    return f"{rate * 100:.2f} %"


def _slug(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label).strip("-")
