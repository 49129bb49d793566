"""What `hybridsim curve` does: from a trace to a table, a CSV and a figure."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from hybridsim.analysis.curve import Refresh, lru_curve, lru_surface
from hybridsim.analysis.draw import draw_curves, draw_surface
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.passes import cached_trie
from hybridsim.analysis.show import (
    curve_sizes,
    log_spaced,
    percent,
    round_sizes,
    tell_refusals,
    write_rows,
)
from hybridsim.analysis.steps import Curve
from hybridsim.errors import UserError
from hybridsim.files import make_folder
from hybridsim.policies.base import CheckpointPolicy
from hybridsim.trie import Trie
from hybridsim.units import format_bytes

_SURFACE_SIZES = 48


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
    tell_refusals(refusals, bool(curves), console)
    sizes = curve_sizes(curves.values())
    rates = {label: curve.token_hit_rate(sizes) for label, curve in curves.items()}
    rows: list[Sequence[object]] = [["checkpoint", "refresh", "memory_bytes", "token_hit_rate"]]
    for label, line in rates.items():
        rows += [
            [label, refresh, *point] for point in zip(sizes.tolist(), line.tolist(), strict=True)
        ]
    write_rows(out_dir / "curve.csv", rows, console)
    title = f"{subject.name}, {subject.model.name}: LRU, refresh {refresh}, one shared pool"
    draw_curves(out_dir / "curve.png", title, sizes, rates, _ideal(subject, trie))
    console.print(f"wrote {out_dir / 'curve.png'}", markup=False, highlight=False)
    table = Table("memory", *curves, title=title)
    for size in round_sizes(sizes):
        cells = [percent(curve.token_hit_rate([size])[0]) for curve in curves.values()]
        table.add_row(format_bytes(size), *cells)
    table.add_row("unlimited", *[percent(curve.ceiling) for curve in curves.values()])
    Console().print(table)


def run_split(subject: Subject, refresh: Refresh, out_dir: Path, console: Console) -> None:
    """A surface for each checkpoint policy: CSV, heat map, and the best split at round sizes."""
    if not subject.model.state_bytes:
        raise UserError("--layout", f"{subject.model.name} has no recurrent state; allowed: shared")
    trie = _trie(subject)
    rows: list[Sequence[object]] = [
        ["checkpoint", "refresh", "kv_bytes", "state_slots", "state_bytes", "token_hit_rate"]
    ]
    refusals: list[UserError] = []
    for label, policy in subject.policies.items():
        try:
            rows += _surface(subject, label, policy, refresh, trie, out_dir)
        except UserError as error:
            refusals.append(error)
    tell_refusals(refusals, len(rows) > 1, console)
    write_rows(out_dir / "curve.csv", rows, console)


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
    kv = log_spaced(*surface.range_kv_bytes, _SURFACE_SIZES)
    slots = log_spaced(1, surface.range_slots[1], _SURFACE_SIZES)
    rates = surface.token_hit_rate(kv, slots)
    title = f"{subject.name}, {subject.model.name}, {label}: LRU, refresh {refresh}, two pools"
    name = "surface.png" if len(subject.policies) == 1 else f"surface-{_slug(label)}.png"
    make_folder(out_dir, "--out")
    draw_surface(out_dir / name, title, kv, slots * state_bytes, rates)
    table = Table("memory", "best share for states", "state slots", "token hit rate", title=title)
    top = surface.range_kv_bytes[1] + surface.range_slots[1] * state_bytes
    for total in round_sizes(log_spaced(int(kv[0]) + state_bytes, top, _SURFACE_SIZES)):
        counts, along = surface.along_budget(total, state_bytes)
        best = int(along.argmax())
        share = counts[best] * state_bytes / total
        table.add_row(
            format_bytes(total), f"{share:.3f}", f"{counts[best]:,}", percent(along[best])
        )
    Console().print(table)
    return [
        [label, refresh, int(k), int(s), int(s) * state_bytes, float(rates[i, j])]
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


def _slug(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label).strip("-")
