"""A plan as text on the screen, as plan.json, trials.csv and a check.yaml that replays it."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from rich.console import Console
from rich.table import Column, Table

from hybridsim.analysis.inputs import Subject
from hybridsim.config import exact_size
from hybridsim.plan.bench import Trial
from hybridsim.plan.common import REFRESH
from hybridsim.plan.confidence import CrossCheck, SeedCheck
from hybridsim.plan.result import MemoryPlan, TargetPlan
from hybridsim.units import format_bytes


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found. `base`: trace, model and tp of an experiment.

    `halves`, `seeds`: by memory in bytes.
    """

    subject: Subject
    base: Mapping[str, Any]
    engine: str
    plans: Sequence[MemoryPlan]
    target: TargetPlan | None
    halves: Mapping[int, Mapping[str, Sequence[CrossCheck]]]
    seeds: Mapping[int, Sequence[SeedCheck]]
    seed_note: str
    trials: Sequence[Trial]


def print_report(report: Report) -> None:
    """On stdout."""
    console = Console()
    for plan in report.plans:
        _say(console, "")
        console.rule(f"{report.subject.name}, {report.engine}: {plan.memory_text} a rank")
        _say_plan(console, report, plan)
    if report.target is not None:
        _say(console, "")
        for line in target_lines(report.target):
            _say(console, line)


def _say_plan(console: Console, report: Report, plan: MemoryPlan) -> None:
    for line in plan_lines(plan):
        _say(console, line)
    name = Column("policy or setting", overflow="fold")
    halves = ("first half", "second half")
    table = Table(name, "states", "token hit rate", "refused", *halves)
    ranked = sorted(plan.by_policy.items(), key=lambda row: -row[1].token_hit_rate)
    for label, trial in ranked:
        slots = trial.capacity.state_slots
        table.add_row(
            label, "one pool" if slots is None else f"{slots:,}", _percent(trial.token_hit_rate),
            str(trial.num_refused), _percent(trial.first_half), _percent(trial.second_half),
        )  # fmt: skip
    console.print(table)
    for line in confidence_lines(report, plan.memory_bytes):
        _say(console, line)
    for note in plan.notes:
        _say(console, f"note: {note}")


def plan_lines(plan: MemoryPlan) -> list[str]:
    """The recommendation, its check, and what one GiB more is worth."""
    best = plan.best
    lines = [f"best: {plan.label}, token hit rate {_percent(best.token_hit_rate)} (replayed)"]
    if best.capacity.state_slots is not None:
        assert plan.fraction is not None
        lines.append(
            f"  state_fraction {plan.fraction:.6g}: {best.capacity.state_slots:,} states, "
            f"{best.capacity.kv_tokens:,} KV tokens"
        )
    lines += [f"  {flag} {value}" for flag, value in plan.flags.items()]
    if plan.bound is not None:
        lines.append(f"proven: in this memory nothing hits more than {_percent(plan.bound)}")
    if plan.baseline is not None:
        lines.append(f"as the engine comes: {_percent(plan.baseline.token_hit_rate)}")
    lines += _check_lines(plan)
    lines += [f"one GiB more by replay, {g.where}: {g.points:+.3f} points" for g in plan.gains]
    return lines


def _check_lines(plan: MemoryPlan) -> list[str]:
    lines = []
    if plan.neighbours is not None:
        sides = {"a step less for states": plan.neighbours.below,
                 "a step more": plan.neighbours.above}  # fmt: skip
        for name, trial in sides.items():
            told = "no such split" if trial is None else _percent(trial.token_hit_rate)
            lines.append(f"check, {name}: {told}")
    found = plan.one_pass
    if found is not None:
        off = 100 * (plan.best.token_hit_rate - found.rate)
        kind, why = f"a relative, {found.label}", "other rules"
        if found.is_exact:
            kind, why = "the same policy", "the running request's own memory, pools that meet"
        lines.append(
            f"one pass ({kind}, lru refresh {REFRESH}) at these pools: {_percent(found.rate)}; "
            f"the replay is {off:+.3f} points off ({why})"
        )
        lines.append(
            f"one pass at its own best split: {_percent(found.split.token_hit_rate)}, within 0.1 "
            f"points from {found.split.least_slots:,} to {found.split.most_slots:,} states"
        )
        gains = found.gains
        lines.append(
            f"one GiB more there by one pass: {gains.best_points:+.3f} points split anew, "
            f"{gains.kv_points:+.3f} all to KV, {gains.state_points:+.3f} all to states"
        )
    return lines


def target_lines(target: TargetPlan) -> list[str]:
    """The memory a target needs, or why there is none."""
    goal = f"target {_percent(target.target)}"
    lines = []
    if target.curve is not None:
        size = target.curve.memory_bytes
        lines.append(
            f"{goal}: {format_bytes(size)} ({size} bytes) with {target.curve.label} by the "
            "one-pass curve; one page less misses it"
        )
    if target.replayed is not None:
        found = target.replayed
        lines.append(
            f"{goal}: {format_bytes(found.memory_bytes)} with {found.label} by replay "
            f"({_percent(found.token_hit_rate)}); {format_bytes(found.misses_bytes)} misses it"
        )
    most = f"the most that memory gives is {_percent(target.ceiling)}"
    return [*lines, most] if lines else [f"{goal}: not reachable; {most}"]


def confidence_lines(report: Report, memory_bytes: int) -> list[str]:
    """Halves and seeds."""
    lines = []
    for kind, checks in report.halves.get(memory_bytes, {}).items():
        for check in checks:
            lines.append(
                f"confidence ({kind}): chosen on the {check.chosen_on}, {check.choice}: "
                f"{_percent(check.own_rate)} there, {_percent(check.other_rate)} on the other; "
                f"regret {check.regret_points:.3f} points"
            )
    for seed in report.seeds.get(memory_bytes, ()):
        line = f"confidence (seed {seed.seed}): {_percent(seed.token_hit_rate)}"
        if seed.best_fraction is not None:
            line += f"; its own best share {seed.best_fraction:.3f}, regret "
            line += f"{seed.regret_points:.3f} points"
        lines.append(line)
    return [*lines, f"confidence ({report.seed_note})"]


def write_report(out_dir: Path, report: Report) -> list[Path]:
    """plan.json, trials.csv, check.yaml; returns their paths."""
    paths = [out_dir / name for name in ("plan.json", "trials.csv", "check.yaml")]
    paths[0].write_bytes(orjson.dumps(as_json(report), option=orjson.OPT_INDENT_2))
    _write_trials(paths[1], report.trials)
    if not report.plans:
        return paths[:2]
    paths[2].write_text(check_experiment(report))
    return paths


def as_json(report: Report) -> dict[str, Any]:
    """The whole report in plain types; rates are fractions, sizes bytes."""
    return {
        "trace": report.base["trace"],
        "model": report.subject.model.name,
        "engine": report.engine,
        "num_requests": len(report.subject.trace.requests),
        "num_warmup_requests": report.subject.num_warmup,
        "plans": [_plan_json(report, plan) for plan in report.plans],
        "target": asdict(report.target) if report.target else None,
        "seed_note": report.seed_note,
    }


def _plan_json(report: Report, plan: MemoryPlan) -> dict[str, Any]:
    one, near = plan.one_pass, plan.neighbours
    return {
        "memory_bytes": plan.memory_bytes,
        "label": plan.label,
        "state_fraction": plan.fraction,
        "best": asdict(plan.best),
        "bound_token_hit_rate": plan.bound,
        "baseline": asdict(plan.baseline) if plan.baseline else None,
        "below": asdict(near.below) if near and near.below else None,
        "above": asdict(near.above) if near and near.above else None,
        "one_pass": one and {
            "label": one.label, "refresh": REFRESH, "is_exact": one.is_exact,
            "token_hit_rate": one.rate, "split": asdict(one.split),
            "gain_points_per_gib": asdict(one.gains),
        },
        "gain_points_per_gib": {gain.where: gain.points for gain in plan.gains},
        "flags": plan.flags,
        "by_policy": {label: trial.token_hit_rate for label, trial in plan.by_policy.items()},
        "halves": {
            kind: [asdict(check) for check in checks]
            for kind, checks in report.halves.get(plan.memory_bytes, {}).items()
        },
        "seeds": [asdict(seed) for seed in report.seeds.get(plan.memory_bytes, ())],
        "notes": list(plan.notes),
    }  # fmt: skip


def _write_trials(path: Path, trials: Sequence[Trial]) -> None:
    keys = sorted({key for trial in trials for key in trial.settings})
    rates = ("token_hit_rate", "first_half", "second_half", "num_refused", "num_evicted")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*keys, *rates])
        for trial in trials:
            settings = [trial.settings.get(key, "") for key in keys]
            writer.writerow([*settings, *[getattr(trial, rate) for rate in rates]])


def check_experiment(report: Report) -> str:
    """An experiment that replays each plan: `hybridsim run check.yaml`."""
    plans = [dict(plan.best.settings) for plan in report.plans]
    for settings in plans:
        settings["cache.memory"] = exact_size(settings["cache.memory"])
    base = {**report.base, "cache": {"memory": plans[0]["cache.memory"]}}
    sweep = [
        {key: [value] for key, value in settings.items() if key.startswith("cache.")}
        | {"engine": [_engine(report.engine, settings)]}
        for settings in plans
    ]
    data = {"name": f"{report.subject.name}-plan-check", **base, "sweep": sweep}
    return yaml.safe_dump(data, sort_keys=False)


def _engine(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    options = {k.removeprefix("engine."): v for k, v in settings.items() if k.startswith("engine.")}
    return {"name": name, **options}


def _percent(rate: float) -> str:
    return f"{100 * rate:.2f} %"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
