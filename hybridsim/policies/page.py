"""The page on policies, made from the registries. `python -m hybridsim.policies.page FILE`."""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from hybridsim.policies import CHECKPOINT, EVICTION, THINNING
from hybridsim.policies.base import EvictionPolicy

START = "<!-- made by hybridsim.policies.page; edit the policies instead -->"
END = "<!-- end of what is made -->"


def tables() -> str:
    """Markdown: one table a registry, a row a policy."""
    parts = [START]
    for title, registry in (
        ("Checkpoint policies (`cache.checkpoint`)", CHECKPOINT),
        ("Eviction policies (`cache.eviction`)", EVICTION),
        ("Thinning rules (`cache.thinning`)", THINNING),
    ):
        parts += [f"## {title}", _table(registry)]
    return "\n\n".join([*parts, END])


def updated(page: str) -> str:
    """The page with its made part made anew."""
    head, _, rest = page.partition(START)
    return head + tables() + rest.partition(END)[2]


def _table(registry: Mapping[str, Callable[..., Any]]) -> str:
    lines = ["| name | parameters | rule | source | differs | layouts | file |"]
    lines.append("|---|---|---|---|---|---|---|")
    for name, policy in registry.items():
        cells = (
            f"`{name}`", _parameters(policy), _rule(policy), policy.source,  # type: ignore[attr-defined]
            policy.deviation or "-", _layouts(policy), _file(policy),  # type: ignore[attr-defined]
        )  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


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


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text()))
