"""Tables of `hybridsim cost`, for the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from hybridsim.cost.fitting import Judgement
from hybridsim.cost.gpus import Gpu
from hybridsim.cost.show.points import in_order
from hybridsim.units import format_bytes

# Who predicts, of what, and how well.
ErrorRow = tuple[str, str, Judgement]
_VERSIONS = ("driver", "torch", "triton", "commit")


def _table(title: str, first: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in first:
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def typical(
    name: str, steps: Mapping[str, Mapping[str, float]], measured_s: Mapping[str, float]
) -> Table:
    """Milliseconds of a few steps by the roofline's parts; measured_s: by a profile, if any."""
    table = _table(f"{name}: roofline of typical steps, ms", ("part",), tuple(steps))
    for part in in_order(steps):
        table.add_row(part, *(_ms(one[part]) if part in one else "" for one in steps.values()))
    table.add_section()
    table.add_row("step", *(_ms(sum(one.values())) for one in steps.values()))
    if measured_s:
        table.add_row("measured model", *(_ms(measured_s[step]) for step in steps))
    return table


def parts(rows: Iterable[ErrorRow]) -> Table:
    """The roofline on the points of each part."""
    numbers = ("points", "median", "95 %", "bias", "largest")
    table = _table("roofline against measured parts: errors", ("part",), numbers)
    for part, count, result in rows:
        table.add_row(part, count, *_percents(result))
    return table


def errors(what: str, rows: Iterable[ErrorRow]) -> Table:
    """Predictions of whole steps."""
    numbers = ("number", "median", "95 %", "bias", "largest")
    table = _table(f"errors of predictions, {what}", ("model", "steps"), numbers)
    for model, kind, result in rows:
        table.add_row(model, kind, str(result.num_steps), *_percents(result))
    return table


def _percents(result: Judgement) -> list[str]:
    sizes = (result.median_absolute, result.p95_absolute)
    return [
        *(f"{size:.1%}" for size in sizes),
        f"{result.bias:+.1%}",
        f"{result.largest:.1%}",
    ]


def gpus(known: Iterable[Gpu]) -> Table:
    """The cards that have a name."""
    numbers = ("bf16 TFLOP/s", "TB/s", "memory", "link GB/s")
    table = _table("GPUs (gpu: NAME is a roofline at these peaks)", ("gpu",), numbers)
    table.add_column("source")
    for gpu in known:
        table.add_row(
            gpu.name,
            f"{gpu.flops_per_s / 1e12:.4g}",
            f"{gpu.hbm_bytes_per_s / 1e12:.3g}",
            format_bytes(gpu.memory_bytes),
            "" if gpu.link_bytes_per_s is None else f"{gpu.link_bytes_per_s / 1e9:.4g}",
            gpu.source,
        )
    return table


def profiles(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> Table:
    """(GPU name, JSON object) of each profile. error: root mean square on the fit's own steps."""
    title = "measured profiles (gpu: {name: NAME, cost: measured})"
    table = _table(title, ("gpu", "model"), ("tp", "points", "error"))
    table.add_column("date", no_wrap=True)
    table.add_column("versions")
    for gpu_name, data in rows:
        machine = data["machine"]
        count = sum(len(operator["points"]) for operator in data["operators"].values())
        error = data.get("fit", {}).get("error")
        error_text = "" if error is None else f"{error:.1%}"
        versions = ", ".join(f"{name} {machine[name]}" for name in _VERSIONS if machine.get(name))
        date = str(machine.get("date", ""))
        table.add_row(
            gpu_name, data["model"], str(data["tp"]), f"{count:,}", error_text, date, versions
        )
    return table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:,.0f}"
