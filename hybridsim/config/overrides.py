"""`--set path=value`: changes a parsed file before anything of it is validated."""

import copy
from collections.abc import Iterable
from typing import Any

from hybridsim.config.source import MAX_DEPTH, Source, parse_value
from hybridsim.errors import UserError, shorten

# A text at one of these places is short for {name: text}, so that its options can be swept.
_NAMED = {"engine", "cache.checkpoint", "cache.eviction", "cache.thinning"}


def override(source: Source, overrides: Iterable[str]) -> Source:
    """Apply `path=value`; a path that is swept keeps its column and this one value.

    A key of `cache` set to null is taken back, its axis included. UserError names a text that is
    no override, or one that the sweep would hide.
    """
    data, paths = copy.deepcopy(source.data), set()
    for text in overrides:
        path, equals, value_text = text.partition("=")
        path = path.strip()
        if not equals or not path:
            raise UserError(f"--set {shorten(text)}", "is no override; allowed: a.b=value")
        value = parse_value(value_text, f"--set {shorten(path)}")
        if path.startswith("sweep."):
            path = path.removeprefix("sweep.")
            _set_axis(data, path, value)
        else:
            _set_swept(data, path, value)
            set_at(data, path, value, f"--set {path}")
        paths.add(path)
    for path in paths:
        _refuse_overlap(path, _products(data))
    return Source(source.name, data, source.lines, frozenset(paths))


def _set_axis(data: dict[str, Any], path: str, value: Any) -> None:
    data["sweep"] = data.get("sweep") or {}
    if not isinstance(data["sweep"], dict):
        raise UserError(f"--set sweep.{path}", "sweep is a list here; allowed: sweep=[...] whole")
    data["sweep"][path] = value


def _set_swept(data: dict[str, Any], path: str, value: Any) -> None:
    for product in _products(data):
        if path in product:
            product[path] = [value]
            if value is None and path.startswith("cache."):
                del product[path]


def _refuse_overlap(path: str, products: list[dict[str, Any]]) -> None:
    for swept in (key for product in products for key in product):
        if f"{path}.".startswith(f"{swept}.") != f"{swept}.".startswith(f"{path}."):
            raise UserError(
                f"--set {path}", f"the experiment sweeps {swept}; allowed: set {swept} itself"
            )


def _products(data: dict[str, Any]) -> list[dict[str, Any]]:
    sweep = data.get("sweep")
    items = sweep if isinstance(sweep, list) else [sweep]
    return [item for item in items if isinstance(item, dict)]


def set_at(data: dict[str, Any], dotted: str, value: Any, place: str) -> None:
    """Set a value at a dotted path, making mappings on the way."""
    *parents, last = dotted.split(".")
    if len(parents) >= MAX_DEPTH:
        raise UserError(shorten(place), f"has too many dots; allowed: at most {MAX_DEPTH} levels")
    here = data
    for index, part in enumerate(parents):
        below = here.get(part)
        if isinstance(below, str) and ".".join(parents[: index + 1]) in _NAMED:
            below = {"name": below}
        if below is None:
            below = {}
        if not isinstance(below, dict):
            inner = ".".join(parents[: index + 1])
            raise UserError(
                place, f"{inner} is {shorten(repr(below))}, not a mapping; allowed: {inner} itself"
            )
        here[part] = below
        here = below
    here[last] = value
