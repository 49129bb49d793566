"""The best that any policy could hit in a run's memory: proven bounds for its summary row."""

from collections.abc import Sequence

from hybridsim.analysis.bound import Bracket, bracket
from hybridsim.analysis.interval import BoundRules, Problem, interval_problem
from hybridsim.build import Built
from hybridsim.request import Request

# Runs of a sweep that share trace and sizes share the problem; those of equal memory the bracket.
_PROBLEMS: dict[tuple[int, int, BoundRules], Problem] = {}
_BRACKETS: dict[tuple[int, float, float | None], Bracket] = {}


def bracket_of(built: Built, requests: Sequence[Request], num_warmup: int) -> Bracket | None:
    """Lower and upper bound of the token hit rate; None where the cache has no known size."""
    limits = built.limits
    if limits is None:
        return None
    rules = BoundRules(
        limits.kv_bytes_per_token,
        limits.state_bytes,
        limits.page_tokens,
        outputs=built.keeps_outputs,
        caps_last_token=built.caps_last_token,
        insertion="forced",
    )
    key = (id(requests), num_warmup, rules)
    if key not in _PROBLEMS:
        _PROBLEMS[key] = interval_problem(requests, rules, num_warmup=num_warmup)
    problem = _PROBLEMS[key]
    memory = (id(problem), limits.capacity_bytes, limits.state_capacity_bytes)
    if memory not in _BRACKETS:
        _BRACKETS[memory] = bracket(problem, limits.capacity_bytes, limits.state_capacity_bytes)
    return _BRACKETS[memory]
