"""The most that any policy and any split could hit in a plan's memory: proven, not replayed."""

from collections.abc import Sequence
from dataclasses import replace

from hybridsim.analysis.bound import bracket
from hybridsim.analysis.interval import BoundRules, Problem, interval_problem
from hybridsim.plan.bench import Bench
from hybridsim.plan.result import MemoryPlan


def with_bounds(plans: Sequence[MemoryPlan], bench: Bench) -> list[MemoryPlan]:
    """The plans, each with the bound of its memory as one pool, of which every split is a part.

    Any page size, and requests that run elsewhere: so it also holds where some are refused. None
    where states that are kept have a size of their own.
    """
    problems: dict[BoundRules, Problem] = {}
    return [replace(plan, bound=_bound(plan, bench, problems)) for plan in plans]


def _bound(plan: MemoryPlan, bench: Bench, problems: dict[BoundRules, Problem]) -> float | None:
    built = bench.build(plan.best.settings)
    limits = built.limits
    if limits is None or limits.states_apart:
        return None
    rules = BoundRules(
        limits.kv_bytes_per_token,
        limits.state_bytes,
        outputs=built.keeps_outputs,
        caps_last_token=built.caps_last_token,
        insertion="bypass",
    )
    if rules not in problems:
        problems[rules] = interval_problem(bench.requests, rules, num_warmup=bench.num_warmup)
    pool_bytes = max(limits.capacity_bytes + (limits.state_capacity_bytes or 0), plan.memory_bytes)
    return bracket(problems[rules], pool_bytes, makes_plans=False).upper
