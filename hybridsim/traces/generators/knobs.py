"""A generator's options as a flat list of names with defaults, for command lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hybridsim.traces.draws import Lengths

_LEFT_OUT = ("generator", "arrivals", "sort", "marks")  # given otherwise, or of no use here


@dataclass(frozen=True, slots=True)
class Knob:
    """One number of a generator: `path` is its place in the options (`("user", "mean")`)."""

    path: tuple[str, ...]
    kind: type[int] | type[float]
    default: int | float
    help: str

    @property
    def name(self) -> str:
        """`user_mean`: as a Python argument."""
        return "_".join(self.path)


def knobs(model: type[BaseModel]) -> list[Knob]:
    """All numbers among the options of a generator, nested token counts laid out flat."""
    found: list[Knob] = []
    for name, info in model.model_fields.items():
        if name in _LEFT_OUT:
            continue
        default = info.get_default(call_default_factory=True)
        if isinstance(default, Lengths):
            for part, part_info in Lengths.model_fields.items():
                about = f"{info.description}: {part_info.description}"
                found.append(_knob((name, part), part_info, getattr(default, part), about))
        else:
            found.append(_knob((name,), info, default, info.description or ""))
    return found


def _knob(path: tuple[str, ...], info: FieldInfo, default: Any, about: str) -> Knob:
    return Knob(path, int if info.annotation is int else float, default, about)


def nested(model: type[BaseModel], values: Mapping[str, int | float]) -> dict[str, Any]:
    """The options that `values`, by knob name, stand for."""
    options: dict[str, Any] = {}
    for knob in knobs(model):
        target = options
        for key in knob.path[:-1]:
            target = target.setdefault(key, {})
        target[knob.path[-1]] = values[knob.name]
    return options
