"""From a name or a mapping in a config to a policy object, with errors that name the place."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from hybridsim.errors import UserError, unknown_name
from hybridsim.policies.base import EvictionPolicy

Policy = TypeVar("Policy")


def make(value: Any, registry: Mapping[str, Callable[..., Policy]], place: str) -> Policy:
    """`value` is a name, or a mapping with `name` and parameters (the policy's fields)."""
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping) or "name" not in value:
        raise UserError(place, f"{value!r} is not allowed; a name or a mapping with `name`")
    name = value["name"]
    if name not in registry:
        raise unknown_name(place, name, list(registry))
    factory = registry[name]
    given = {key: item for key, item in value.items() if key != "name"}
    _check_parameters(name, factory, given, place)
    return factory(**given)


def _check_parameters(name: str, factory: Any, given: Mapping[str, Any], place: str) -> None:
    known = {item.name: item for item in fields(factory) if item.init}
    for key, item in given.items():
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise UserError(f"{place}.{key}", f"{name} has no such parameter; allowed: {allowed}")
        wanted = known[key].type
        if not _is_a(item, wanted):
            kind = getattr(wanted, "__name__", wanted)
            raise UserError(f"{place}.{key}", f"{item!r} is not allowed; wants {kind}")
    for key, field in known.items():
        if key not in given and _is_required(field):
            raise UserError(f"{place}.{key}", f"{name} needs this parameter")


def _is_a(item: Any, wanted: Any) -> bool:
    if isinstance(item, bool):
        return wanted is bool
    return isinstance(item, int | float) if wanted is float else isinstance(item, wanted)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def at_least(place: str, value: float, minimum: float) -> None:
    """UserError if `value` of the parameter at `place` is below `minimum`."""
    if not value >= minimum:
        raise UserError(place, f"{value} is not allowed; at least {minimum}")


def check_layout(policy: EvictionPolicy, layout: str, place: str = "cache.layout") -> None:
    """UserError with the reason if the policy's rule means nothing in that layout."""
    if layout not in policy.layouts:
        allowed = ", ".join(policy.layouts)
        raise UserError(
            place, f"{layout!r} is not allowed with this eviction policy: {policy.refusal}; "
            f"allowed: {allowed}"
        )  # fmt: skip
