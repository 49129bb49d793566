"""What `hybridsim curve --grid` does: exact replays at some sizes, a line a set of policies."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.lines import Line
from hybridsim.analysis.lockstep import Capacity, GridReplay, num_refused
from hybridsim.analysis.passes import cached_trie
from hybridsim.analysis.show import tell_refusals, write_rows
from hybridsim.analysis.sizes import Build, check_sizes
from hybridsim.errors import UserError
from hybridsim.trie import Trie
from hybridsim.units import format_bytes, percent

Replay = Callable[[Subject, Line, Sequence[Capacity], Trie], GridReplay]


def run_grid(
    subject: Subject,
    sizes_bytes: Sequence[int],
    state_fraction: float | None,
    replay: Replay,
    build: Build,
    out_dir: Path,
    console: Console,
) -> None:
    """All lines over one trie.

    UserError for a size that `build`, the builder of runs, refuses, and where not one line means
    anything in this layout.
    """
    state_fraction = _fraction(subject, state_fraction)
    page_tokens = subject.rules.page_tokens
    pairs = [(size, state_fraction) for size in sizes_bytes]
    check_sizes(subject.config, pairs, build, "--grid", page_tokens=page_tokens)
    capacities = [_capacity(subject, size, state_fraction) for size in sizes_bytes]
    refused = _refused(subject, sizes_bytes, capacities, console)
    rates = _rates(subject, capacities, replay, console)
    rows: list[Sequence[object]] = [
        ["checkpoint", "eviction", "thinning", "memory_bytes", "token_hit_rate", "num_refused"]
    ]
    for line, values in rates.items():
        names = (line.checkpoint, line.eviction, line.thinning or "")
        rows += [[*names, *point] for point in zip(sizes_bytes, values, refused, strict=True)]
    write_rows(out_dir / "curve.csv", rows, console)
    title = f"{subject.name}, {subject.model.name}: replayed, layout {subject.layout}"
    table = Table("memory", *[line.label for line in rates], title=title)
    for index, size in enumerate(sizes_bytes):
        table.add_row(format_bytes(size), *[percent(values[index]) for values in rates.values()])
    Console().print(table)


def _rates(
    subject: Subject, capacities: Sequence[Capacity], replay: Replay, console: Console
) -> dict[Line, list[float]]:
    """Token hit rate at each capacity, for the lines that mean something in this layout."""
    trie = cached_trie(subject.trace.requests, outputs=subject.rules.outputs)
    rates: dict[Line, list[float]] = {}
    refusals: list[UserError] = []
    for line in subject.lines:
        try:
            grid = replay(subject, line, capacities, trie)
        except UserError as error:
            refusals.append(error)
            continue
        rates[line] = grid.token_hit_rate(subject.num_warmup).tolist()
    tell_refusals(refusals, bool(rates), console)
    return rates


def _fraction(subject: Subject, state_fraction: float | None) -> float | None:
    """The share of memory for states; None where there is one pool, or no states at all."""
    if subject.layout == "shared" or not subject.rules.state_bytes:
        return None
    if state_fraction is None and len(subject.state_fractions) == 1:
        state_fraction = subject.state_fractions[0]
    if state_fraction is None or not 0 < state_fraction < 1:
        found = "is missing" if state_fraction is None else f"{state_fraction}"
        allowed = "above 0 and below 1, which layout split needs"
        raise UserError("--state-fraction", f"{found}; allowed: {allowed}")
    return state_fraction


def _capacity(subject: Subject, size_bytes: int, state_fraction: float | None) -> Capacity:
    if state_fraction is None:
        return Capacity(size_bytes)
    states = int(size_bytes * state_fraction)
    return Capacity(size_bytes - states, states // subject.rules.state_bytes)


def _refused(
    subject: Subject,
    sizes_bytes: Sequence[int],
    capacities: Sequence[Capacity],
    console: Console,
) -> list[int]:
    """Requests that fit into no cache of each size; a hit rate counts them as misses, so tell."""
    requests = subject.trace.requests
    refused = [num_refused(requests, subject.rules, capacity) for capacity in capacities]
    for size, count in zip(sizes_bytes, refused, strict=True):
        if count:
            console.print(
                f"{format_bytes(size)}: {count:,} of {len(requests):,} requests never fit; the "
                "rates count them as not reused",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
    return refused
