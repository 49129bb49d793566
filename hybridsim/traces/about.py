"""What there is to know of a format before reading a trace: its fields and its options.

All of it stands with the readers; this only lays it out. `python -m hybridsim.traces.about FILE`
renews the page on traces.
"""

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from hybridsim.docs import MadePart, markdown_table
from hybridsim.traces import FORMATS
from hybridsim.traces.content import GENERATORS as CONTENT
from hybridsim.traces.generators import GENERATORS
from hybridsim.traces.options import TraceOptions

_KINDS = {
    int: "an integer", float: "a number", bool: "true, false", str: "a text", dict: "a mapping",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OptionRow:
    """One option: its key below `trace`, what it takes, its default as YAML, what it is for."""

    key: str
    allowed: str
    default: str
    meaning: str


def description_of(name: str) -> str:
    """What the reader's file says of its format: fields, units, traps."""
    text = inspect.getdoc(sys.modules[FORMATS[name].read.__module__]) or ""
    text = text.removeprefix(f"`{name}`: ")
    return text[:1].upper() + text[1:]


def own_options(name: str) -> list[OptionRow]:
    """Options of one format that not all of them have, or whose default is its own."""
    shared = set(option_rows(TraceOptions))
    return [row for row in option_rows(FORMATS[name].options) if row not in shared]


def generator_options() -> dict[str, list[OptionRow]]:
    """Options of each generator of `generate`, without those that all of them have."""
    shared = set(option_rows(FORMATS["generate"].options))
    return {
        name: [row for row in option_rows(model) if row not in shared]
        for name, (model, _) in GENERATORS.items()
    }


def option_rows(model: type[BaseModel], prefix: str = "") -> list[OptionRow]:
    """All options of a model; those of a mapping inside it as dotted keys."""
    rows: list[OptionRow] = []
    for name, field in model.model_fields.items():
        if name == "generator":
            continue  # what has been asked for, not how
        default = field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            inner = option_rows(type(default), f"{prefix}{name}.")
            values = default.model_dump(mode="json")
            rows += [_with_default(row, values[row.key.rpartition(".")[2]]) for row in inner]
        else:
            about = field.description or ""
            rows.append(OptionRow(f"{prefix}{name}", _allowed(field), _shown(default), about))
    return rows


def _with_default(row: OptionRow, value: Any) -> OptionRow:
    return OptionRow(row.key, row.allowed, _shown(value), row.meaning)


def _shown(value: Any) -> str:
    if value is None or value == () or repr(value) == "PydanticUndefined":
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _allowed(field: FieldInfo) -> str:
    limits: dict[str, float | None] = dict.fromkeys(("ge", "gt", "le", "lt"))
    for limit in field.metadata:
        limits |= {name: getattr(limit, name) for name in limits if hasattr(limit, name)}
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    bounds = [
        f"{signs[name]} {_plain(value)}" for name, value in limits.items() if value is not None
    ]
    return " ".join([_kind(field.annotation), " and ".join(bounds)]).strip()


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not NoneType))
    if get_origin(annotation) is tuple:
        kind = _kind(get_args(annotation)[0])
        return f"a list of {kind.partition(' ')[2]}s" if kind.startswith("a") else f"a list: {kind}"
    return _KINDS.get(get_origin(annotation) or annotation, "a mapping")


def page() -> str:
    """The made part of the page, as Markdown."""
    parts = ["## Options of every format", _table(option_rows(TraceOptions))]
    for name, form in FORMATS.items():
        parts += [f"## `{name}`: {form.about}", description_of(name)]
        if rows := own_options(name):
            parts.append(_table(rows))
    parts.append("## Generators of `generate`")
    for generator, knobs in generator_options().items():
        parts += [f"`generator: {generator}`", _table(knobs)]
    parts.append("## Generators of `content`")
    for generator, (model, _) in CONTENT.items():
        parts += [f"`generator: {generator}`. {inspect.getdoc(model)}", _table(option_rows(model))]
    return "\n" + "\n\n".join(parts) + "\n"


def _table(rows: Sequence[OptionRow]) -> str:
    if not rows:
        return "It has no options."
    return markdown_table(
        ("option", "allowed", "default", "meaning"),
        [(f"`{x.key}`", x.allowed, x.default and f"`{x.default}`", x.meaning) for x in rows],
    )


PART = MadePart(
    "<!-- made by hybridsim.traces.about; edit the readers instead -->",
    "<!-- end of what is made -->",
    page,
)

if __name__ == "__main__":
    PART.main()
