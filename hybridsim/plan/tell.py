"""A plan as text on the screen."""

from rich.console import Console
from rich.table import Column, Table

from hybridsim.plan.common import REFRESH
from hybridsim.plan.report import Report
from hybridsim.plan.result import MemoryPlan, TargetPlan
from hybridsim.terminal import wide_console
from hybridsim.units import format_bytes, percent

_WIDE, _MOST_ROWS = 150, 16


def print_report(report: Report) -> None:
    """On stdout; cells are not folded to the width of a terminal that is none."""
    console = wide_console(_WIDE)
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
    for label, trial in ranked[:_MOST_ROWS]:
        slots = trial.capacity.state_slots
        table.add_row(
            label, "one pool" if slots is None else f"{slots:,}", percent(trial.token_hit_rate),
            str(trial.num_refused), percent(trial.first_half), percent(trial.second_half),
        )  # fmt: skip
    console.print(table)
    if len(ranked) > _MOST_ROWS:
        _say(console, f"and {len(ranked) - _MOST_ROWS} below these, in settings.png and trials.csv")
    for line in confidence_lines(report, plan.memory_bytes):
        _say(console, line)
    for note in plan.notes:
        _say(console, f"note: {note}")


def plan_lines(plan: MemoryPlan) -> list[str]:
    """The recommendation, its check, and what one GiB more is worth."""
    best = plan.best
    lines = [f"best: {plan.label}, token hit rate {percent(best.token_hit_rate)} (replayed)"]
    if best.capacity.state_slots is not None:
        assert plan.fraction is not None
        lines.append(
            f"  state_fraction {plan.fraction:.6g}: {best.capacity.state_slots:,} states, "
            f"{best.capacity.kv_tokens:,} KV tokens"
        )
    lines += [f"  {flag} {value}" for flag, value in plan.flags.items()]
    if plan.bound is not None:
        lines.append(f"proven: in this memory nothing hits more than {percent(plan.bound)}")
    if plan.baseline is not None:
        lines.append(f"as the engine comes: {percent(plan.baseline.token_hit_rate)}")
    lines += _check_lines(plan)
    lines += [f"one GiB more by replay, {g.where}: {g.points:+.3f} points" for g in plan.gains]
    return lines


def _check_lines(plan: MemoryPlan) -> list[str]:
    lines = []
    if plan.neighbours is not None:
        sides = {"a step less for states": plan.neighbours.below,
                 "a step more": plan.neighbours.above}  # fmt: skip
        for name, trial in sides.items():
            told = "no such split" if trial is None else percent(trial.token_hit_rate)
            lines.append(f"check, {name}: {told}")
    found = plan.one_pass
    if found is not None:
        off = 100 * (plan.best.token_hit_rate - found.rate)
        kind, why = f"a relative, {found.label}", "other rules"
        if found.is_exact:
            kind, why = "the same policy", "the running request's own memory, pools that meet"
        lines.append(
            f"one pass ({kind}, lru refresh {REFRESH}) at these pools: {percent(found.rate)}; "
            f"the replay is {off:+.3f} points off ({why})"
        )
        lines.append(
            f"one pass at its own best split: {percent(found.split.token_hit_rate)}, within 0.1 "
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
    goal = f"target {percent(target.target)}"
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
            f"({percent(found.token_hit_rate)}); {format_bytes(found.misses_bytes)} misses it"
        )
    most = f"the most that memory gives is {percent(target.ceiling)}"
    return [*lines, most] if lines else [f"{goal}: not reachable; {most}"]


def confidence_lines(report: Report, memory_bytes: int) -> list[str]:
    """Halves and seeds."""
    lines = []
    for kind, checks in report.halves.get(memory_bytes, {}).items():
        for check in checks:
            lines.append(
                f"confidence ({kind}): chosen on the {check.chosen_on}, {check.choice}: "
                f"{percent(check.own_rate)} there, {percent(check.other_rate)} on the other; "
                f"regret {check.regret_points:.3f} points"
            )
    for seed in report.seeds.get(memory_bytes, ()):
        line = f"confidence (seed {seed.seed}): {percent(seed.token_hit_rate)}"
        if seed.best_fraction is not None:
            line += f"; its own best share {seed.best_fraction:.3f}, regret "
            line += f"{seed.regret_points:.3f} points"
        lines.append(line)
    return [*lines, f"confidence ({report.seed_note})"]


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
