"""What `hybridsim plan` does: from a trace, a model and memories to a recommendation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from hybridsim.analysis.curve import CacheRules, lru_surface
from hybridsim.analysis.inputs import Subject, Wish
from hybridsim.analysis.planner import SplitRules
from hybridsim.analysis.steps import Surface
from hybridsim.config import parse_value
from hybridsim.errors import UserError, unknown_name
from hybridsim.files import make_folder
from hybridsim.plan import sglang, vllm
from hybridsim.plan.bench import Bench, Trial
from hybridsim.plan.candidates import EVICTIONS, candidates, label_of
from hybridsim.plan.ceiling import with_bounds
from hybridsim.plan.common import REFRESH
from hybridsim.plan.confidence import (
    CrossCheck,
    SeedCheck,
    cross_splits,
    cross_trials,
    is_same_trace,
    seed_check,
)
from hybridsim.plan.figures import write_figures
from hybridsim.plan.inputs import Inputs
from hybridsim.plan.report import Report, write_report
from hybridsim.plan.research import EVICTION, ResearchPlanner
from hybridsim.plan.result import MemoryPlan, Planner, TargetPlan
from hybridsim.plan.sglang import SGLangPlanner
from hybridsim.plan.tell import print_report
from hybridsim.plan.vllm import VLLMPlanner
from hybridsim.policies import make_checkpoint
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.request import Request

RESEARCH, SGLANG = "research", "sglang-0.5.23"
VLLM = ("vllm-0.33.0", "vllm-0.27.1")
PLANNED = (RESEARCH, SGLANG, *VLLM)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of the command. `fixed`: engine options that are not searched."""

    engine: str = RESEARCH
    memories_bytes: tuple[int, ...] = ()
    target: float | None = None
    step: float = 0.05
    num_seeds: int = 3
    fixed: Mapping[str, object] = field(default_factory=dict)


def run(inputs: Inputs, options: PlanOptions, out_dir: Path, console: Console) -> Report:
    """Plan, check, write and print. UserError for bad input, before anything is written."""
    bench = _bench(inputs.subject, options, inputs.wish)
    bench.on_trial = lambda trial, wall_s: console.print(
        f"  {100 * trial.token_hit_rate:6.2f} %  {wall_s:5.1f} s  {trial.settings}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    planner = _planner(inputs.subject, bench, options, inputs.wish)
    report = _report(inputs, options, bench, planner)
    make_folder(out_dir, "--out")
    written = write_report(out_dir, report)
    rules = planner.rules if isinstance(planner, ResearchPlanner | SGLangPlanner) else None
    title = f"{report.subject.name}, {bench.model.name}, {bench.engine}"
    written += write_figures(out_dir, title, report.plans, bench, rules)
    for file in written:
        console.print(f"wrote {file}", markup=False, highlight=False)
    print_report(report)
    return report


def check(options: PlanOptions) -> None:
    """UserError for options that no trace could make right."""
    if options.engine not in PLANNED:
        raise unknown_name("--engine", options.engine, list(PLANNED))
    if not options.memories_bytes and options.target is None:
        raise UserError("--memory", "is missing; allowed: a size such as 16GiB, or --target alone")
    if options.target is not None and not 0 < options.target <= 1:
        raise UserError("--target", f"{options.target}; allowed: a hit rate > 0 and <= 1")
    if not 0 < options.step < 0.5:
        raise UserError("--step", f"{options.step}; allowed: a fraction > 0 and < 0.5")


def _bench(subject: Subject, options: PlanOptions, wish: Wish) -> Bench:
    fixed: dict[str, Any] = {f"engine.{key}": value for key, value in options.fixed.items()}
    if options.engine == RESEARCH:
        fixed["cache.page_size"] = subject.rules.page_tokens
    elif wish.page_size is not None:
        if options.engine != SGLANG:
            raise UserError("--page-size", "vLLM's blocks follow from the model; allowed: none")
        fixed["cache.page_size"] = wish.page_size
    requests = subject.trace.requests
    return Bench(options.engine, subject.model, requests, subject.num_warmup, fixed)


def _planner(subject: Subject, bench: Bench, options: PlanOptions, wish: Wish) -> Planner:
    if options.engine in VLLM:
        return VLLMPlanner(bench, options.engine.removeprefix("vllm-"))
    if options.engine == SGLANG:
        page_tokens = wish.page_size or 1
        return SGLangPlanner(bench, replace(subject.rules, page_tokens=page_tokens), options.step)
    policies = _policies(subject, wish)
    evictions = [parse_value(text, "--eviction") for text in wish.eviction] or EVICTIONS
    return ResearchPlanner(bench, subject.rules, policies, options.step, evictions)


def _policies(subject: Subject, wish: Wish) -> dict[str, Any]:
    """Those named on the command line, else all that the research cache has."""
    if not wish.checkpoint:
        return candidates(subject.trace.requests)
    values = [parse_value(text, "--checkpoint") for text in wish.checkpoint]  # checked before
    return {label_of(value): value for value in values}


def _report(inputs: Inputs, options: PlanOptions, bench: Bench, planner: Planner) -> Report:
    plans = [planner.plan(size) for size in options.memories_bytes]
    target: TargetPlan | None = None
    if options.target is not None:
        target = planner.reach(options.target)
        if target.replayed and not plans:
            plans.append(planner.plan(target.replayed.memory_bytes))
    plans = with_bounds(plans, bench)
    halves = {plan.memory_bytes: _halves(plan, bench, inputs, planner) for plan in plans}
    seeds, seed_note = _seeds(inputs, options, bench, plans, planner)
    return Report(
        inputs.subject, inputs.base, options.engine, plans, target, halves, seeds, seed_note,
        bench.trials,
    )  # fmt: skip


def _halves(
    plan: MemoryPlan, bench: Bench, inputs: Inputs, planner: Planner
) -> dict[str, list[CrossCheck]]:
    tried = [t for t in bench.trials if t.settings.get("cache.memory") == plan.memory_bytes]
    found = {"settings replayed": cross_trials(tried, partial(_trial_label, bench))}
    rules, surface_of = _one_pass_of(plan, inputs.subject.rules, planner)
    if rules is not None and surface_of is not None:
        found[f"splits, one pass, {plan.one_pass.label if plan.one_pass else ''}"] = cross_splits(
            bench.requests, bench.num_warmup, plan.memory_bytes, rules, surface_of
        )
    return found


def _trial_label(bench: Bench, trial: Trial) -> str:
    if bench.engine in VLLM:
        return vllm.label_of(trial, bench.fixed)
    slots = f"{trial.capacity.state_slots} states"
    if bench.engine == SGLANG:
        return f"{sglang.label_of(trial)}, {slots}"
    named = [label_of(trial.settings["cache.checkpoint"])]
    if EVICTION in trial.settings:
        named.append(label_of(trial.settings[EVICTION]))
    return ", ".join([*named, slots])


def _one_pass_of(
    plan: MemoryPlan, rules: CacheRules, planner: Planner
) -> tuple[SplitRules | None, Any]:
    """How to draw the plan's surface for other requests; None, None for engines of one pool."""
    if plan.one_pass is None or not isinstance(planner, ResearchPlanner | SGLangPlanner):
        return None, None
    if isinstance(planner, SGLangPlanner):
        policy: CheckpointPolicy = planner.guide
        rules = replace(rules, page_tokens=planner.rules.page_bytes // rules.kv_bytes_per_token)
    else:
        label = plan.one_pass.label
        policy = make_checkpoint(planner.policies.get(label, label))

    def surface_of(requests: Sequence[Request], num_warmup: int) -> Surface:
        return lru_surface(requests, rules, policy, num_warmup=num_warmup, refresh=REFRESH)

    return planner.rules, surface_of


def _seeds(
    inputs: Inputs,
    options: PlanOptions,
    bench: Bench,
    plans: Sequence[MemoryPlan],
    planner: Planner,
) -> tuple[dict[int, list[SeedCheck]], str]:
    """Each plan under other seeds, if the trace draws anything at all."""
    if options.num_seeds < 2:
        return {}, "seeds: not asked for (--seeds 1)"
    found: dict[int, list[SeedCheck]] = {plan.memory_bytes: [] for plan in plans}
    for seed in range(1, options.num_seeds):
        requests = inputs.requests_of_seed(seed)
        if is_same_trace(requests, bench.requests):
            return {}, "seeds: the trace draws nothing at random, so no seed changes it"
        for plan in plans:
            rules, surface_of = _one_pass_of(plan, inputs.subject.rules, planner)
            check = seed_check(seed, requests, bench, plan, rules, surface_of)
            found[plan.memory_bytes].append(check)
    return found, f"seeds: 0 is the plan's own; 1 to {options.num_seeds - 1} are drawn anew"
