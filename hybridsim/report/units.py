"""How metrics and swept values become axes: labels with units, factors, scales."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

from hybridsim.errors import UserError
from hybridsim.report.figure import Axis, Scale
from hybridsim.units import format_bytes, parse_bytes


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column's name for people, its unit, and the factor from the column to that unit."""

    label: str
    unit: str
    factor: float = 1.0

    @property
    def axis_label(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


_NAMES = {
    "token_hit_rate": "Token hit rate",
    "token_match_rate": "Token match rate",
    "request_hit_rate": "Requests with a hit",
    "ceiling_token_hit_rate": "Ceiling (infinite cache)",
    "bound_token_hit_rate": "Bound (best possible)",
    "feasible_token_hit_rate": "Feasible (some policy)",
    "ttft_s": "Time to first token",
    "tpot_s": "Time per output token",
    "e2e_s": "End-to-end time",
    "queue_s": "Time in queue",
    "peak_kv_bytes": "Peak KV memory",
    "peak_state_bytes": "Peak state memory",
    "kv_bytes": "KV memory in use",
    "state_bytes": "State memory in use",
    "num_requests": "Requests measured",
    "num_refused": "Requests refused",
    "num_evicted_tokens": "Evicted KV",
    "num_evicted_states": "Evicted states",
    "num_checkpoints": "Saved states",
    "num_preemptions": "Preemptions",
    "num_running": "Requests running",
    "num_waiting": "Requests waiting",
    "num_prefill_tokens": "Prefill tokens",
    "num_decode_tokens": "Decode tokens",
}
_KEYS = {
    "cache.memory": "memory",
    "cache.checkpoint": "checkpoint policy",
    "cache.eviction": "eviction policy",
    "cache.layout": "memory layout",
    "cache.state_fraction": "share of memory for states",
    "cache.page_size": "page size",
}
# Memories that are no size: without a limit, or counted in something else.
_APART = {"unlimited": "no limit", "null": "in blocks"}
_STATISTICS = ("mean", "p50", "p90", "p99")


def quantity(column: str) -> Quantity:
    """Name and unit of a result column, read from the unit that its name carries."""
    base, _, statistic = column.rpartition("_")
    if statistic in _STATISTICS and base:
        inner = quantity(base)
        return Quantity(f"{inner.label}, {statistic}", inner.unit, inner.factor)
    name = _NAMES.get(column) or column.replace("_", " ").capitalize()
    if column.endswith(("_rate", "_share")) or column == "regret":
        return Quantity(name, "%", 100.0)
    if column.endswith("_per_s"):
        return Quantity(name.removesuffix(" per s"), "1/s")
    if column.endswith("_s"):
        return Quantity(name.removesuffix(" s"), "s")
    if column.endswith("_bytes"):
        return Quantity(name.removesuffix(" bytes"), "GiB", 2.0**-30)
    if column.endswith("_tokens"):
        return Quantity(name, "tokens")
    return Quantity(name, "")


def in_unit_for(column: str, highest: float) -> Quantity:
    """The quantity, in milliseconds where no value reaches half a second."""
    found = quantity(column)
    if found.unit == "s" and highest < 0.5:
        return Quantity(found.label, "ms", 1e3)
    return found


def y_axis(quantities: Sequence[Quantity], highest: float) -> Axis:
    """The axis for metrics of one unit, from zero to a little above the `highest` value in it."""
    first = quantities[0]
    label = first.axis_label
    if len(quantities) > 1:
        label = "Share of prompt tokens (%)" if first.unit == "%" else first.unit
    if first.unit == "%":
        top = min(102.0, ceil(highest * 1.06 / 5) * 5) if highest > 5 else highest * 1.15 or 1.0
        return Axis(label, range=(0.0, top))
    return Axis(label, range=(0.0, highest * 1.06 or 1.0))


def key_label(key: str) -> str:
    """A config key for people."""
    return _KEYS.get(key, key)


@dataclass(frozen=True, slots=True)
class XAxis:
    """An axis for a swept key, and where on it each of the values lies.

    `apart`: values that stand beside the scale, not on it. `is_named`: the values are names, whose
    order and distances mean nothing.
    """

    axis: Axis
    positions: dict[str, float]
    apart: frozenset[str] = frozenset()
    is_named: bool = False


def x_axis(key: str, values: Sequence[str]) -> XAxis:
    """Memory on a log-2 axis labelled in GiB; numbers on a linear or log axis; else names in a row.

    `values` are the distinct texts of the column. `unlimited` is set apart at the right.
    """
    if key == "cache.memory":
        return _memory_axis(values)
    numbers = _numbers(values)
    if numbers is None:
        positions = {value: float(index) for index, value in enumerate(values)}
        return XAxis(
            Axis(key_label(key).capitalize(), ticks={at: value for value, at in positions.items()}),
            positions,
            is_named=True,
        )
    spread = max(numbers.values()) / max(min(numbers.values()), 1e-300)
    is_log = min(numbers.values()) > 0 and spread > 16 and len(numbers) > 2
    ticks = {at: f"{at:g}" for at in sorted(numbers.values())} if len(numbers) <= 12 else None
    return XAxis(
        Axis(key_label(key).capitalize(), Scale.LOG2 if is_log else Scale.LINEAR, ticks), numbers
    )


def _memory_axis(values: Sequence[str]) -> XAxis:
    sizes = {v: float(parse_bytes(v, "cache.memory")) / 2**30 for v in values if v not in _APART}
    highest, lowest = max(sizes.values(), default=1.0), min(sizes.values(), default=1.0)
    ticks = {2.0**e: _gib(2.0**e) for e in range(floor(log2(lowest)), ceil(log2(highest)) + 1)}
    for value in [value for value in _APART if value in values]:
        sizes[value] = max(ticks) * 2.0**1.2
        ticks[sizes[value]] = _APART[value]
    label = "Cache memory, KV and states together (GiB, log scale)"
    return XAxis(Axis(label, Scale.LOG2, ticks), sizes, frozenset(_APART))


def _gib(size_gib: float) -> str:
    return f"{size_gib:g}" if size_gib >= 1 / 8 else format_bytes(size_gib * 2**30)


def _numbers(values: Sequence[str]) -> dict[str, float] | None:
    numbers = {}
    for value in values:
        try:
            numbers[value] = float(value)
        except ValueError:
            try:
                numbers[value] = float(parse_bytes(value, "value"))
            except UserError:
                return None
    return numbers
