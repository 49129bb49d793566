"""Which figures a plan gets, and where their numbers come from."""

from collections.abc import Sequence
from math import isqrt
from pathlib import Path

import numpy as np

from hybridsim.analysis.planner import SplitRules
from hybridsim.plan.bench import Bench
from hybridsim.plan.common import with_counts
from hybridsim.plan.draw import (
    Heat,
    draw_split_plans,
    one_pass_heat,
    sizes_around,
)
from hybridsim.plan.result import MemoryPlan
from hybridsim.plan.settings_figure import draw_settings

# Replays of one request each that a surface may cost; larger traces get the one-pass surface.
_MOST_SERVED = 60_000
_FEWEST_CELLS, _MOST_CELLS = 8, 18
_AGREES = 0.002


def write_figures(
    out_dir: Path, title: str, plans: Sequence[MemoryPlan], bench: Bench, rules: SplitRules | None
) -> list[Path]:
    """surface.png (one a policy where plans differ in it) and settings.png for each memory."""
    written = []
    labels = list(dict.fromkeys(plan.label for plan in plans)) if rules is not None else []
    for label in labels:
        assert rules is not None
        mine = [plan for plan in plans if plan.label == label]
        path = out_dir / ("surface.png" if len(labels) == 1 else f"surface-{_slug(label)}.png")
        heat = _heat(mine, bench, rules)
        draw_split_plans(path, f"{title}, {label}", mine, rules, bench.trials, heat)
        written.append(path)
    for plan in plans:
        size = plan.memory_text.replace(" ", "")
        path = out_dir / ("settings.png" if len(plans) == 1 else f"settings-{size}.png")
        rows = {name: trial.token_hit_rate for name, trial in plan.by_policy.items()}
        draw_settings(path, f"{title}, {plan.memory_text}", rows, plan.bound)
        written.append(path)
    return written


def _heat(plans: Sequence[MemoryPlan], bench: Bench, rules: SplitRules) -> Heat:
    """One pass where it is right for the policy, else replays where the trace is short enough."""
    is_right = all(
        plan.one_pass is not None
        and plan.one_pass.is_exact
        and abs(plan.best.token_hit_rate - plan.one_pass.rate) <= _AGREES
        for plan in plans
    )
    count = min(_MOST_CELLS, isqrt(_MOST_SERVED // max(len(bench.requests), 1)))
    if is_right or count < _FEWEST_CELLS:
        return one_pass_heat(plans, rules)
    kv, slots = sizes_around(plans, rules, count)
    rates = np.full((len(kv), len(slots)), np.nan)
    for row, kv_bytes in enumerate(kv.tolist()):
        kv_tokens = kv_bytes // bench.model.kv_bytes_per_token
        for column, num_slots in enumerate(slots.tolist()):
            trial = bench.attempt(with_counts(plans[0].best.settings, kv_tokens, num_slots))
            if trial is not None:
                rates[row, column] = trial.token_hit_rate
    return Heat(kv, slots, rates, f"Colour: {len(kv)} x {len(slots)} replays")


def _slug(label: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in label).split())
