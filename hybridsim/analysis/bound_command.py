"""What `hybridsim bound` does: from a trace to a bracket for each memory size."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from hybridsim.analysis.bound import NUM_STEPS, Bracket, bracket
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.interval import (
    BoundRules,
    Insertion,
    Problem,
    Served,
    problem_in_turn,
)
from hybridsim.analysis.lockstep import Capacity, fitting
from hybridsim.analysis.reward import Reward
from hybridsim.analysis.room import BoolArray
from hybridsim.analysis.show import write_rows
from hybridsim.analysis.sizes import Build, check_sizes
from hybridsim.cost import get_cost_model
from hybridsim.cost.base import CostModel
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import get_model
from hybridsim.units import format_bytes, percent

REWARDS = ("tokens", "flops", "seconds")
COLUMNS = (
    "memory_bytes", "state_bytes", "insertion", "reward", "lower", "upper", "width", "ideal",
    "num_steps", "seconds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BoundOptions:
    """Options of the command. `memories_bytes` of none: those that the experiment sweeps."""

    memories_bytes: tuple[int, ...] = ()
    state_fractions: tuple[float, ...] = ()
    insertion: Insertion = "forced"
    reward: str = "tokens"
    gpu: str | None = None
    num_steps: int = NUM_STEPS
    any_cache: bool = False


@dataclass(frozen=True, slots=True)
class _Pools:
    """One memory. `capacity_bytes`: of KV, or of all if `state_slots` is None (a shared pool)."""

    capacity_bytes: int
    state_slots: int | None
    state_bytes: int

    @property
    def state_capacity_bytes(self) -> float | None:
        return None if self.state_slots is None else float(self.state_slots * self.state_bytes)

    @property
    def total_bytes(self) -> int:
        return self.capacity_bytes + (self.state_slots or 0) * self.state_bytes


def run(
    subject: Subject, options: BoundOptions, build: Build, out_dir: Path, console: Console
) -> None:
    """Write bound.csv and print a table.

    UserError for missing sizes, sizes that `build`, the builder of runs, refuses, and unknown
    names.
    """
    memories = options.memories_bytes or subject.memories_bytes
    if not memories:
        raise UserError("--memory", "is missing; allowed: sizes such as 4GiB,8GiB")
    rules = _rules(subject, options)
    pairs = _pairs(subject, options, memories)
    place = "--memory" if options.memories_bytes else "cache.memory"
    check_sizes(subject.config, pairs, build, place, page_tokens=rules.page_tokens)
    serves_all = options.any_cache or options.insertion == "bypass"
    problems = _Problems(subject, rules, _reward(subject, options), serves_all=serves_all)
    rows = []
    for pair in pairs:
        pools = _pools(subject, rules, *pair)
        rows.append(_row(problems.of(pools), pools, options))
        problems.tell_refused(pools, console)
    write_rows(out_dir / "bound.csv", [COLUMNS, *rows], console)
    console.print(f"the interval problem took {problems.made_s:.2f} s", highlight=False)
    Console().print(_table(subject, options, rows))


class _Problems:
    """The problems of a trace by the requests that fit: memories that take the same share one.

    serves_all: nobody is refused, since requests run elsewhere, or since some cache may take them.
    """

    def __init__(
        self, subject: Subject, rules: BoundRules, reward: Reward, *, serves_all: bool
    ) -> None:
        self._subject, self._rules, self._reward = subject, rules, reward
        self._serves_all = serves_all
        self._made: dict[bytes, Problem] = {}
        self.made_s = 0.0

    def of(self, pools: _Pools) -> Problem:
        """Of the requests that can run in these pools, which are those that a run serves."""
        fits = self._fits(pools)
        key = fits.tobytes()
        if key not in self._made:
            start_s = time.perf_counter()
            requests = self._subject.trace.requests
            order = np.flatnonzero(fits).tolist()
            served = Served.chosen(requests, order, self._subject.num_warmup)
            self._made[key] = problem_in_turn(served, self._rules, self._reward)
            self.made_s += time.perf_counter() - start_s
        return self._made[key]

    def tell_refused(self, pools: _Pools, console: Console) -> None:
        fits = self._fits(pools)
        if not fits.all():
            console.print(
                f"{format_bytes(pools.total_bytes)}: {(~fits).sum():,} of {len(fits):,} requests "
                "never fit; they are left out but for their prompts, as in the rows of a run",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip

    def _fits(self, pools: _Pools) -> BoolArray:
        requests = self._subject.trace.requests
        if self._serves_all:
            return np.ones(len(requests), dtype=bool)
        capacity = Capacity(pools.capacity_bytes, pools.state_slots)
        return fitting(requests, self._subject.rules, capacity)


def _rules(subject: Subject, options: BoundOptions) -> BoundRules:
    rules = subject.rules
    return BoundRules(
        rules.kv_bytes_per_token,
        rules.state_bytes,
        page_tokens=1 if options.any_cache else rules.page_tokens,
        outputs=rules.outputs or options.any_cache,
        last_output=options.any_cache,
        caps_last_token=rules.caps_last_token and not options.any_cache,
        insertion=options.insertion,
    )


def _reward(subject: Subject, options: BoundOptions) -> Reward:
    longest = max(request.num_prompt_tokens for request in subject.trace.requests)
    if options.reward == "tokens":
        return Reward.tokens()
    if options.reward == "flops":
        return Reward.flops(subject.model, longest)
    if options.reward != "seconds":
        raise unknown_name("--reward", options.reward, list(REWARDS))
    if options.gpu is None:
        raise UserError("--gpu", "is missing; --reward seconds needs a GPU's name, such as h200")
    return Reward.seconds(_cost(subject, options.gpu), longest)


def _cost(subject: Subject, gpu_text: str) -> CostModel:
    """The price list of one rank, all-reduces included, on a named GPU or a YAML mapping."""
    try:
        gpu = yaml.safe_load(gpu_text)
    except yaml.YAMLError:
        raise UserError("--gpu", f"{gpu_text!r} is neither a name nor a YAML mapping") from None
    config = subject.config
    return get_cost_model(gpu, get_model(config.model), config.tp, "--gpu")


def _pairs(
    subject: Subject, options: BoundOptions, memories: Sequence[int]
) -> list[tuple[int, float | None]]:
    """Memory in bytes and share of states, None for a shared pool or no states at all."""
    if subject.layout == "shared" or not subject.rules.state_bytes:
        return [(memory, None) for memory in memories]
    fractions = options.state_fractions or subject.state_fractions
    if not fractions:
        allowed = "above 0 and below 1, which layout split needs"
        raise UserError("--state-fraction", f"is missing; allowed: {allowed}")
    for fraction in fractions:
        if not 0 < fraction < 1:
            raise UserError("--state-fraction", f"{fraction}; allowed: above 0 and below 1")
    return [(memory, fraction) for memory in memories for fraction in fractions]


def _pools(
    subject: Subject, rules: BoundRules, memory_bytes: int, fraction: float | None
) -> _Pools:
    """KV in whole pages and states in whole slots, as in a run."""
    if fraction is None:
        return _Pools(memory_bytes, None, rules.state_bytes)
    page_bytes = subject.rules.page_tokens * rules.kv_bytes_per_token
    of_states = int(memory_bytes * fraction)
    return _Pools(
        (memory_bytes - of_states) // page_bytes * page_bytes,
        of_states // rules.state_bytes,
        rules.state_bytes,
    )


def _row(problem: Problem, pools: _Pools, options: BoundOptions) -> list[object]:
    start_s = time.perf_counter()
    sizes = float(pools.capacity_bytes), pools.state_capacity_bytes
    found: Bracket = bracket(problem, *sizes, num_steps=options.num_steps)
    return [
        pools.total_bytes,
        "" if pools.state_slots is None else pools.state_slots * pools.state_bytes,
        options.insertion,
        options.reward,
        round(found.lower, 6),
        round(found.upper, 6),
        round(found.width, 6),
        round(found.ideal, 6),
        found.num_steps,
        round(time.perf_counter() - start_s, 2),
    ]


def _table(subject: Subject, options: BoundOptions, rows: Sequence[Sequence[object]]) -> Table:
    title = f"{subject.name}, {subject.model.name}: share of {options.reward} that can be saved"
    table = Table("memory", "states", "lower", "upper", "width", "steps", "seconds", title=title)
    for memory, states, _, _, lower, upper, width, _, steps, seconds in rows:
        percents = [percent(float(str(value))) for value in (lower, upper)]
        table.add_row(
            format_bytes(float(str(memory))),
            format_bytes(float(str(states))) if states != "" else "shared",
            *percents,
            f"{float(str(width)) * 100:.2f}",
            str(steps),
            str(seconds),
        )
    return table
