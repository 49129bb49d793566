"""The best that any policy could hit in a run's memory: proven bounds for its summary row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hybridsim.analysis.batches import batch_problems
from hybridsim.analysis.blocks import block_problem
from hybridsim.analysis.bound import Bracket, bound_of_windows, bracket, ideal_share
from hybridsim.analysis.interval import BoundRules, Problem, Served, problem_in_turn
from hybridsim.build import Built
from hybridsim.build.base import Limits
from hybridsim.records import BatchChange, MissReason, RequestRecord
from hybridsim.request import Request

# Runs of a sweep that share trace, sizes and refusals share the problem; those of equal memory the
# bracket. Traces are told apart by identity, so those that a key speaks of are kept.
_PROBLEMS: dict[tuple[object, ...], Problem] = {}
_TRACES: dict[int, Sequence[Request]] = {}
_BRACKETS: dict[tuple[object, ...], Bracket] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """A run that is over. `changes` of the batch: None where requests were served in turn."""

    built: Built
    requests: Sequence[Request]
    num_warmup: int
    records: Sequence[RequestRecord]
    changes: Sequence[BatchChange] | None = None


@dataclass(frozen=True, slots=True)
class Best:
    """Token hit rates: what some policy reaches (0 where no plan was made), what none passes."""

    feasible: float
    bound: float


def best_possible(done: Done) -> Best:
    """What any policy could hit of the requests that were served, in the order of their start."""
    if done.changes is not None:
        return _best_in_batches(done, done.changes)
    problem, is_whole = _problem_in_turn(done)
    limits = done.built.limits
    if limits is None:
        ideal = ideal_share(problem)
        return Best(ideal, ideal)
    own = (limits.capacity_bytes, limits.state_capacity_bytes)
    bound = _with_excess(problem, limits, _bracket(problem, *own).upper)
    plans = [
        _bracket(problem, *pools).lower
        for pools in limits.plan_pools or (own,)
        if pools == own or problem.load.fits(limits.state_bytes, *pools)
    ]
    feasible = max(plans, default=0.0) if is_whole else 0.0
    return Best(feasible, min(bound, _bound_of_windows(problem, limits)))


def _best_in_batches(done: Done, changes: Sequence[BatchChange]) -> Best:
    """In the batches of the run; other hits would make other batches."""
    rules = _rules(done.built)
    problems = batch_problems(done.requests, changes, rules, num_warmup=done.num_warmup)
    limits = done.built.limits
    if limits is None:
        return Best(ideal_share(problems.plan), ideal_share(problems.bound))
    pools = (limits.capacity_bytes, limits.state_capacity_bytes)
    bound = bracket(problems.bound, *pools, makes_plans=False).upper
    is_sure = problems.plan.load.fits(limits.state_bytes, *pools)
    return Best(bracket(problems.plan, *pools).lower if is_sure else 0.0, bound)


def _problem_in_turn(done: Done) -> tuple[Problem, bool]:
    """The problem of the requests that ran, and whether all of those were also served to the end.

    A request that was preempted before it was refused has left something behind.
    """
    refused = {i for i, r in enumerate(done.records) if r.miss_reason == MissReason.REFUSED}
    given_up = frozenset(i for i in refused if done.records[i].num_preemptions)
    order = [i for i in range(len(done.records)) if i not in refused or i in given_up]
    rules, is_in_blocks = _rules(done.built), _is_in_blocks(done.built)
    missing = frozenset(refused)
    key = (id(done.requests), done.num_warmup, rules, is_in_blocks, missing, given_up)
    if key not in _PROBLEMS:
        _TRACES[id(done.requests)] = done.requests
        if is_in_blocks:
            _PROBLEMS[key] = block_problem(done.requests, num_warmup=done.num_warmup)
        else:
            served = Served.chosen(done.requests, order, done.num_warmup, given_up)
            _PROBLEMS[key] = problem_in_turn(served, rules)
    return _PROBLEMS[key], not given_up


def _is_in_blocks(built: Built) -> bool:
    return built.limits is not None and built.limits.in_blocks


def _rules(built: Built) -> BoundRules:
    limits = built.limits or Limits(1, 0, 0.0)
    return BoundRules(
        limits.kv_bytes_per_token,
        limits.state_bytes,
        limits.page_tokens,
        outputs=built.keeps_outputs,
        last_output=built.keeps_last_output,
        caps_last_token=built.caps_last_token,
        insertion="forced" if limits.takes_room else "bypass",
        states_apart=limits.states_apart,
        longest_tokens=limits.longest_tokens,
    )


def _bracket(problem: Problem, capacity_bytes: float, state_bytes: float | None) -> Bracket:
    key = (id(problem), capacity_bytes, state_bytes)
    if key not in _BRACKETS:
        _BRACKETS[key] = bracket(problem, capacity_bytes, state_bytes)
    return _BRACKETS[key]


def _bound_of_windows(problem: Problem, limits: Limits) -> float:
    """What full KV and the pool of a sliding window allow, states aside; 1 without a window."""
    if limits.window is None:
        return 1.0
    window_tokens, pool_tokens = limits.window
    return bound_of_windows(problem, window_tokens, limits.capacity_bytes, pool_tokens)


def _with_excess(problem: Problem, limits: Limits, bound: float) -> float:
    """The bound where any policy may hold as much as this run did, when that was too much."""
    held = np.array(limits.held_bytes() if limits.held_bytes else [], dtype=np.float64)
    if not (held > limits.capacity_bytes).any():
        return bound
    allowed = np.maximum(held, limits.capacity_bytes)
    return bracket(problem, allowed, limits.state_capacity_bytes, makes_plans=False).upper
