"""Mappings from config files checked against a pydantic schema, with mistakes as UserErrors."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from hybridsim.errors import UserError, shorten, unknown_name


class Strict(BaseModel):
    """A mapping with these keys only and no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


T = TypeVar("T", bound=BaseModel)


def checked(schema: type[T], mapping: Mapping[str, Any], place: str) -> T:
    """`mapping` as `schema`; the first mistake becomes a UserError that names key and value."""
    try:
        return schema.model_validate(dict(mapping))
    except ValidationError as error:
        # An unknown key is often why another one is missing, so it is named first.
        first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join([place, *map(str, first["loc"])])
    if first["type"] == "extra_forbidden":
        raise unknown_name(key, first["loc"][-1], _known_keys(schema, first["loc"][:-1]))
    shown = "" if first["type"] == "missing" else f"{shorten(repr(first['input']))}: "
    raise UserError(key, f"{shown}{first['msg']}")


def _known_keys(schema: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys that the mapping at `path` inside `schema` may have."""
    for step in path:
        field = schema.model_fields.get(str(step))
        # A step that is no field is a key of a dict of schemas, already entered.
        if field is not None:
            schema = next(_schemas_in(field.annotation), schema)
    return list(schema.model_fields)


def _schemas_in(annotation: Any) -> Any:
    """Every pydantic schema inside a type annotation, from left to right."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _schemas_in(part)
