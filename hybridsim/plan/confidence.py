"""How far a plan may be trusted: chosen on one half of the trace and judged on the other, and again
under other seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hybridsim.analysis.planner import Split, SplitRules, best_split, rate_at
from hybridsim.analysis.steps import Surface
from hybridsim.plan.bench import Bench, Trial
from hybridsim.plan.result import MemoryPlan
from hybridsim.request import Request

SurfaceOf = Callable[[Sequence[Request], int], Surface]


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """What one half would have chosen, and what that costs on the other half.

    `regret_points`: the other half's own best minus what this choice gives there.
    """

    chosen_on: str
    choice: str
    own_rate: float
    other_rate: float
    regret_points: float


@dataclass(frozen=True, slots=True)
class SeedCheck:
    """The plan under another seed. `best_fraction`, `regret_points`: from that seed's own surface,
    None where one pass cannot tell."""

    seed: int
    token_hit_rate: float
    best_fraction: float | None
    regret_points: float | None


def cross_trials(trials: Sequence[Trial], label_of: Callable[[Trial], str]) -> list[CrossCheck]:
    """Both ways over the settings that were replayed; the second half runs in a warm cache."""
    if not trials:
        return []
    first = max(trials, key=lambda trial: trial.first_half)
    second = max(trials, key=lambda trial: trial.second_half)
    return [
        CrossCheck(
            "first half", label_of(first), first.first_half, first.second_half,
            100 * (second.second_half - first.second_half),
        ),
        CrossCheck(
            "second half", label_of(second), second.second_half, second.first_half,
            100 * (first.first_half - second.first_half),
        ),
    ]  # fmt: skip


def cross_splits(
    requests: Sequence[Request],
    num_warmup: int,
    memory_bytes: int,
    rules: SplitRules,
    surface_of: SurfaceOf,
) -> list[CrossCheck]:
    """Both ways over all splits, from the exact surface of each half."""
    half = (num_warmup + len(requests)) // 2
    if not num_warmup < half < len(requests):
        return []
    named = {
        "first half": surface_of(requests[:half], num_warmup),
        "second half": surface_of(requests, half),
    }
    splits = {name: best_split(found, memory_bytes, rules) for name, found in named.items()}
    checks = []
    for name, other in (("first half", "second half"), ("second half", "first half")):
        mine, theirs = splits[name], splits[other]
        if mine is None or theirs is None:
            return []
        there = rate_at(named[other], mine.pools)
        checks.append(
            CrossCheck(
                name,
                f"states {_fraction(mine, rules):.3f} of the memory",
                mine.token_hit_rate,
                there,
                100 * (theirs.token_hit_rate - there),
            )
        )
    return checks


def seed_check(
    seed: int,
    requests: Sequence[Request],
    bench: Bench,
    plan: MemoryPlan,
    rules: SplitRules | None,
    surface_of: SurfaceOf | None,
) -> SeedCheck:
    """Replay the plan on the trace drawn with another seed."""
    fresh = Bench(
        bench.engine, bench.model, requests, bench.num_warmup, bench.fixed, bench.seed + seed
    )
    trial = fresh.run(plan.best.settings)
    if rules is None or surface_of is None or plan.one_pass is None:
        return SeedCheck(seed, trial.token_hit_rate, None, None)
    surface = surface_of(requests, bench.num_warmup)
    split = best_split(surface, plan.memory_bytes, rules)
    if split is None:
        return SeedCheck(seed, trial.token_hit_rate, None, None)
    regret = split.token_hit_rate - rate_at(surface, plan.one_pass.pools)
    return SeedCheck(seed, trial.token_hit_rate, _fraction(split, rules), 100 * regret)


def is_same_trace(one: Sequence[Request], other: Sequence[Request]) -> bool:
    """Whether two readings of a trace have the same prompts and lengths in the same order."""
    if len(one) != len(other):
        return False
    return all(
        a.request_id == b.request_id
        and a.num_prompt_tokens == b.num_prompt_tokens
        and a.num_output_tokens == b.num_output_tokens
        and np.array_equal(a.prompt.ids, b.prompt.ids)
        for a, b in zip(one, other, strict=True)
    )


def _fraction(split: Split, rules: SplitRules) -> float:
    return split.pools.state_slots * rules.state_bytes / split.memory_bytes
