"""A plan as plan.json, trials.csv and a check.yaml that replays it."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from hybridsim.analysis.inputs import Subject
from hybridsim.config import exact_size
from hybridsim.files import write_whole, written_whole
from hybridsim.plan.bench import Trial
from hybridsim.plan.common import REFRESH
from hybridsim.plan.confidence import CrossCheck, SeedCheck
from hybridsim.plan.result import MemoryPlan, TargetPlan


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


def write_report(out_dir: Path, report: Report) -> list[Path]:
    """plan.json, trials.csv, check.yaml; returns their paths."""
    paths = [out_dir / name for name in ("plan.json", "trials.csv", "check.yaml")]
    write_whole(paths[0], orjson.dumps(as_json(report), option=orjson.OPT_INDENT_2))
    _write_trials(paths[1], report.trials)
    if not report.plans:
        return paths[:2]
    write_whole(paths[2], check_experiment(report).encode())
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
    with written_whole(path) as temporary, temporary.open("w", newline="") as file:
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
