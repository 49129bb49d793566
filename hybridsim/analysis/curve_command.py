"""What `hybridsim curve` does: from a trace to a table, a CSV and a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hybridsim.analysis.curve import Refresh, lru_curve, lru_surface
from hybridsim.analysis.curve_bounds import pool_bounds
from hybridsim.analysis.draw import draw_curves, draw_surface
from hybridsim.analysis.ideal import ceiling_token_hit_rate, ideal_hit_tokens
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.passes import cached_trie
from hybridsim.analysis.show import (
    curve_sizes,
    log_spaced,
    round_sizes,
    tell_refusals,
    write_rows,
)
from hybridsim.analysis.steps import Curve, Surface
from hybridsim.errors import UserError
from hybridsim.files import make_folder
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.trie import Trie
from hybridsim.units import format_bytes, percent

_SURFACE_SIZES = 48


def run_shared(
    subject: Subject, refresh: Refresh, out_dir: Path, console: Console, *, has_bound: bool
) -> None:
    """A line for each checkpoint policy; those that one pass cannot tell are named and left out.

    has_bound: draw what no policy passes above them.
    """
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
    _tell_what_is_served(subject, console)
    rates = {label: curve.token_hit_rate(sizes) for label, curve in curves.items()}
    rows: list[Sequence[object]] = [["checkpoint", "refresh", "memory_bytes", "token_hit_rate"]]
    for label, line in rates.items():
        rows += [
            [label, refresh, *point] for point in zip(sizes.tolist(), line.tolist(), strict=True)
        ]
    write_rows(out_dir / "curve.csv", rows, console)
    title = f"{subject.name}, {subject.model.name}: LRU, refresh {refresh}, one shared pool"
    bounds = _bounds(subject, round_sizes(sizes), out_dir, console) if has_bound else {}
    draw_curves(out_dir / "curve.png", title, sizes, rates, _ideal(subject), bounds)
    console.print(f"wrote {out_dir / 'curve.png'}", markup=False, highlight=False)
    table = Table("memory", *curves, *(["at most"] if bounds else []), title=title)
    for size in round_sizes(sizes):
        cells = [curve.token_hit_rate([size])[0] for curve in curves.values()]
        cells += [bounds[size]] if bounds else []
        table.add_row(format_bytes(size), *map(percent, cells))
    table.add_row("unlimited", *[percent(curve.ceiling) for curve in curves.values()])
    Console().print(table)


def run_split(
    subject: Subject, refresh: Refresh, out_dir: Path, console: Console, *, has_bound: bool
) -> None:
    """A surface for each checkpoint policy: CSV, heat map, and the best split at round sizes.

    has_bound: write what no policy and no split passes beside these.
    """
    if not subject.model.state_bytes:
        raise UserError("--layout", f"{subject.model.name} has no recurrent state; allowed: shared")
    trie = _trie(subject)
    rows: list[Sequence[object]] = [
        ["checkpoint", "refresh", "kv_bytes", "state_slots", "state_bytes", "token_hit_rate"]
    ]
    refusals: list[UserError] = []
    surfaces: dict[str, Surface] = {}
    for label, policy in subject.policies.items():
        try:
            surfaces[label] = _surface(subject, label, policy, refresh, trie)
        except UserError as error:
            refusals.append(error)
    tell_refusals(refusals, bool(surfaces), console)
    totals = sorted({total for one in surfaces.values() for total in _totals(subject, one)})
    bounds = _bounds(subject, totals, out_dir, console) if has_bound else {}
    for label, surface in surfaces.items():
        title = f"{subject.name}, {subject.model.name}, {label}: LRU, refresh {refresh}, two pools"
        name = "surface.png" if len(subject.policies) == 1 else f"surface-{_slug(label)}.png"
        make_folder(out_dir, "--out")
        rows += [
            [label, refresh, *row]
            for row in _drawn(subject, surface, title, out_dir / name, bounds)
        ]
    write_rows(out_dir / "curve.csv", rows, console)


def _surface(
    subject: Subject, label: str, policy: CheckpointPolicy, refresh: Refresh, trie: Trie
) -> Surface:
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
    return surface


def _totals(subject: Subject, surface: Surface) -> list[int]:
    """Round sizes of both pools together, over the range in which the surface moves."""
    state_bytes, (low, high) = subject.model.state_bytes, surface.range_kv_bytes
    top = high + surface.range_slots[1] * state_bytes
    return round_sizes(log_spaced(low + state_bytes, top, _SURFACE_SIZES))


def _drawn(
    subject: Subject, surface: Surface, title: str, path: Path, bounds: Mapping[int, float]
) -> list[Sequence[object]]:
    """The heat map and the table of best splits; returns a row for each cell."""
    state_bytes = subject.model.state_bytes
    kv = log_spaced(*surface.range_kv_bytes, _SURFACE_SIZES)
    slots = log_spaced(1, surface.range_slots[1], _SURFACE_SIZES)
    rates = surface.token_hit_rate(kv, slots)
    draw_surface(path, title, kv, slots * state_bytes, rates, bounds)
    most = ["at most"] if bounds else []
    table = Table(
        "memory", "best share for states", "state slots", "token hit rate", *most, title=title
    )
    for total in _totals(subject, surface):
        counts, along = surface.along_budget(total, state_bytes)
        best = int(along.argmax())
        share = counts[best] * state_bytes / total
        cells = [f"{share:.3f}", f"{counts[best]:,}", percent(along[best])]
        table.add_row(format_bytes(total), *cells, *([percent(bounds[total])] if bounds else []))
    Console().print(table)
    return [
        [int(k), int(s), int(s) * state_bytes, float(rates[i, j])]
        for i, k in enumerate(kv)
        for j, s in enumerate(slots)
    ]


def _bounds(
    subject: Subject, sizes_bytes: Sequence[int], out_dir: Path, console: Console
) -> dict[int, float]:
    """What nothing passes at these sizes, in a file of its own."""
    bounds = pool_bounds(
        subject.trace.requests, subject.rules, sizes_bytes, num_warmup=subject.num_warmup
    )
    rows: list[Sequence[object]] = [["memory_bytes", "bound_token_hit_rate"]]
    rows += sorted(bounds.items())
    write_rows(out_dir / "bounds.csv", rows, console)
    return bounds


def _tell_what_is_served(subject: Subject, console: Console) -> None:
    """From which memory on a replay serves what a curve serves."""
    rules, page = subject.rules, subject.rules.page_tokens
    longest = max(request.num_final_tokens for request in subject.trace.requests)
    least = -(-longest // page) * page * rules.kv_bytes_per_token + rules.state_bytes
    console.print(
        f"below {format_bytes(least)} a replay refuses the longest requests; a curve serves them "
        "all and so may be too low there (--grid replays)",
        markup=False, highlight=False,
    )  # fmt: skip


def _trie(subject: Subject) -> Trie:
    return cached_trie(subject.trace.requests, outputs=subject.rules.outputs)


def _ideal(subject: Subject) -> float:
    """What an infinite cache with states everywhere would hit of the measured requests."""
    requests, rules = subject.trace.requests, subject.rules
    ideal = ideal_hit_tokens(
        requests, keeps_outputs=rules.outputs, caps_last_token=rules.caps_last_token
    )
    return ceiling_token_hit_rate(requests, ideal, subject.num_warmup) or 0.0


def _slug(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label).strip("-")
