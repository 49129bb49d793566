"""Kinds of values in a config: names with options, sizes, strict numbers. It knows no key.

A description says what a key means; `allowed` in the schema's extras is quoted in errors and in
docs/experiments.md, so that both say the same.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from hybridsim.units import UNLIMITED, parse_bytes


def declared(default: Any, allowed: str, meaning: str, **limits: Any) -> Any:
    """A key of a config: its default (... for none), what it allows in words and in limits."""
    extra: dict[str, Any] = {"allowed": allowed}
    return Field(default, description=meaning, json_schema_extra=extra, **limits)


def _named(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _memory(value: object) -> object:
    # UserError is no ValueError, so it passes pydantic untouched, place and all.
    return value if value == UNLIMITED else parse_bytes(value, "cache.memory", UNLIMITED)


def exact_size(size_bytes: int | str) -> int | str:
    """The size as people write it where that is exact (`8GiB`), else the number of bytes."""
    if isinstance(size_bytes, str):
        return size_bytes
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return size_bytes


class Strict(BaseModel):
    """A mapping that has these keys and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Named(BaseModel):
    """A name from a registry, with options: `every` or `{name: every, tokens: 1024}`."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)
    name: str = declared(..., "a name", "name in the registry")

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def plain(self) -> str | dict[str, Any]:
        """As it is written: the name alone, or a mapping."""
        return {"name": self.name, **self.options} if self.options else self.name

    def __str__(self) -> str:
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name


NameOrMapping = Annotated[
    Named, BeforeValidator(_named), PlainSerializer(lambda named: named.plain, return_type=Any)
]
Memory = Annotated[
    int | Literal["unlimited"],
    BeforeValidator(_memory),
    PlainSerializer(exact_size, return_type=Any),
]
StrictInt = Annotated[int, Field(strict=True)]
StrictFloat = Annotated[float, Field(strict=True)]
StrictBool = Annotated[bool, Field(strict=True)]
