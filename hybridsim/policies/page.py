"""The page on policies, made from the registries. `python -m hybridsim.policies.page FILE`."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from hybridsim.docs import MadePart, markdown_table
from hybridsim.policies import CHECKPOINT, EVICTION, THINNING
from hybridsim.policies.base import EvictionPolicy

_HEADS = ("name", "parameters", "rule", "source", "differs", "layouts", "file")


def tables() -> str:
    """Markdown: one table a registry, a row a policy."""
    parts = []
    for title, registry in (
        ("Checkpoint policies (`cache.checkpoint`)", CHECKPOINT),
        ("Eviction policies (`cache.eviction`)", EVICTION),
        ("Thinning rules (`cache.thinning`)", THINNING),
    ):
        parts += [f"## {title}", _table(registry)]
    return "\n" + "\n\n".join(parts) + "\n"


def _table(registry: Mapping[str, Callable[..., Any]]) -> str:
    rows = [
        (
            f"`{name}`", _parameters(policy), _rule(policy), policy.source,  # type: ignore[attr-defined]
            policy.deviation or "-", _layouts(policy), _file(policy),  # type: ignore[attr-defined]
        )
        for name, policy in registry.items()
    ]  # fmt: skip
    return markdown_table(_HEADS, rows)


def _rule(policy: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(policy) or "").split())


def _parameters(policy: Callable[..., Any]) -> str:
    shown = []
    for field in fields(policy):  # type: ignore[arg-type]
        if field.init:
            default = "" if field.default is MISSING else f" = {field.default}"
            shown.append(f"`{field.name}{default}`")
    return ", ".join(shown) or "-"


def _layouts(policy: Any) -> str:
    if not (inspect.isclass(policy) and issubclass(policy, EvictionPolicy)):
        return "split, shared"
    refusal = f" ({policy.refusal})" if policy.refusal else ""
    return ", ".join(policy.layouts) + refusal


def _file(policy: Any) -> str:
    return "`" + policy.__module__.removeprefix("hybridsim.policies.").replace(".", "/") + ".py`"


PART = MadePart(
    "<!-- made by hybridsim.policies.page; edit the policies instead -->",
    "<!-- end of what is made -->",
    tables,
)

if __name__ == "__main__":
    PART.main()
