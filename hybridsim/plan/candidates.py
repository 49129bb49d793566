"""Which policies of the research cache a plan looks at, and how it names them."""

from collections.abc import Sequence
from typing import Any

from hybridsim.config import Named
from hybridsim.policies import EVICTION
from hybridsim.request import Request

ALWAYS: tuple[Any, ...] = (
    "prompt_end",
    {"name": "every", "tokens": 1024},
    {"name": "every", "tokens": 4096},
    "all_blocks",
    "sqrt",
    "log",
    {"name": "balanced", "states": 4},
    "branch",
    "prompt_end+branch",
    {"name": "retention", "tokens": 0},
)
WITH_OUTPUTS: tuple[Any, ...] = ("turn_end", "prompt_end+turn_end", "marconi")
# belady and session_end know the future, and tlru wants a threshold that only its user can know.
_NOT_TRIED = ("lru", "belady", "session_end", "tlru")
EVICTIONS: tuple[Any, ...] = (
    "lru",
    {"name": "lru", "refresh": "consumed"},
    *[name for name in EVICTION if name not in _NOT_TRIED],
)


def candidates(requests: Sequence[Request]) -> dict[str, Any]:
    """Label -> `cache.checkpoint`. Those that save in outputs, or at marks, only where there are
    any."""
    values = list(ALWAYS)
    if any(request.output.num_known_tokens for request in requests):
        values += WITH_OUTPUTS
    if any(request.marks for request in requests):
        values.append("marked")
    return {label_of(value): value for value in values}


def label_of(value: Any) -> str:
    """`every(tokens=1024)`, as experiments write it in tables."""
    return value if isinstance(value, str) else str(Named(**value))
