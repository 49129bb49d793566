"""Turns pydantic's findings into one UserError that names key, value and what is allowed."""

import types
from collections.abc import Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from hybridsim.config.schema import RunConfig
from hybridsim.errors import UserError, did_you_mean, shorten

T = TypeVar("T", bound=BaseModel)


def validate(model: type[T], data: Any, prefix: str = "") -> T:
    """`model.model_validate(data)`; a finding becomes a UserError whose place is the dotted key.

    All findings are told in one message, the first one as the place.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        findings = [_explain(model, finding, prefix) for finding in error.errors()]
        place, message = findings[0]
        rest = [
            f"\n  and {key}: {text}" for key, text in dict(findings[1:]).items() if key != place
        ]
        raise UserError(place, message + "".join(rest)) from None


def _explain(model: type[BaseModel], finding: Any, prefix: str) -> tuple[str, str]:
    path = _keys_only(model, finding["loc"])
    place = ".".join([prefix, *path] if prefix else path) or "experiment"
    value = finding["input"]
    owner = _model_at(model, path[:-1])
    allowed = _allowed(owner, path[-1]) if path else "a mapping of keys"
    if finding["type"] == "extra_forbidden":
        keys = list(owner.model_fields) if owner else []
        keys = [*keys, "name", "sweep", "plots"] if owner is RunConfig else keys
        near = did_you_mean(path[-1], keys)
        return place, f"unknown key {path[-1]!r}{near}; allowed: {', '.join(keys)}"
    if finding["type"] == "missing":
        return place, f"is missing; allowed: {allowed}"
    near = did_you_mean(value, allowed.split(", ")) if isinstance(value, str) else ""
    return place, f"{shorten(repr(value), 200)} is not allowed{near}; allowed: {allowed}"


def _keys_only(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """The location as the user's keys: pydantic puts union tags behind a leaf field."""
    path: list[str] = []
    for part in loc:
        owner = _model_at(model, path)
        if owner is None and not isinstance(part, int):
            break
        path.append(str(part))
    return path


def _allowed(owner: type[BaseModel] | None, key: str) -> str:
    if owner is None or key not in owner.model_fields:
        return "a mapping"
    extra = owner.model_fields[key].json_schema_extra
    return str(extra["allowed"]) if isinstance(extra, dict) else "another value"


def _model_at(model: type[BaseModel] | None, path: Sequence[str]) -> type[BaseModel] | None:
    """The model that holds the keys below `path`, None below a leaf."""
    for part in path:
        if model is None or (part not in model.model_fields and not part.isdigit()):
            return None
        if not part.isdigit():
            model = _model_in(model.model_fields[part].annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, tuple, list) or get_args(annotation):
        return next(filter(None, map(_model_in, get_args(annotation))), None)
    return None
