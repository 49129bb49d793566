"""What `hybridsim bound` does: from a trace to a bracket for each memory size."""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from hybridsim.analysis.bound import NUM_STEPS, Bracket, bracket
from hybridsim.analysis.inputs import Subject
from hybridsim.analysis.interval import BoundRules, Insertion, Problem, interval_problem
from hybridsim.analysis.reward import Reward
from hybridsim.analysis.show import write_rows
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


def run(subject: Subject, options: BoundOptions, out_dir: Path, console: Console) -> None:
    """Write bound.csv and print a table. UserError for missing sizes and unknown names."""
    memories = options.memories_bytes or subject.memories_bytes
    if not memories:
        raise UserError("--memory", "is missing; allowed: sizes such as 4GiB,8GiB")
    start_s = time.perf_counter()
    problem = _problem(subject, options)
    made_s = time.perf_counter() - start_s
    rows = list(_rows(problem, _pools(subject, options, memories), options))
    write_rows(out_dir / "bound.csv", [COLUMNS, *rows], console)
    console.print(f"the interval problem took {made_s:.2f} s", highlight=False)
    Console().print(_table(subject, options, rows))


def _problem(subject: Subject, options: BoundOptions) -> Problem:
    rules = subject.rules
    chosen = BoundRules(
        rules.kv_bytes_per_token,
        rules.state_bytes,
        page_tokens=1 if options.any_cache else rules.page_tokens,
        outputs=rules.outputs or options.any_cache,
        last_output=options.any_cache,
        caps_last_token=rules.caps_last_token and not options.any_cache,
        insertion=options.insertion,
    )
    return interval_problem(
        subject.trace.requests,
        chosen,
        num_warmup=subject.num_warmup,
        reward=_reward(subject, options),
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


def _pools(
    subject: Subject, options: BoundOptions, memories: Sequence[int]
) -> Iterator[tuple[float, float | None]]:
    """(bytes of KV or of all, bytes of states or None for a shared pool), size by size."""
    fractions = options.state_fractions or subject.state_fractions
    page_bytes = subject.rules.page_tokens * subject.rules.kv_bytes_per_token
    for memory in memories:
        if subject.layout == "shared" or not subject.rules.state_bytes:
            yield float(memory), None
            continue
        if not fractions:
            raise UserError("--state-fraction", "is missing; layout split needs it (or shared)")
        for fraction in fractions:
            if not 0 < fraction < 1:
                raise UserError("--state-fraction", f"{fraction}; allowed: above 0 and below 1")
            states = int(memory * fraction)
            slots = states // subject.rules.state_bytes
            yield (
                float((memory - states) // page_bytes * page_bytes),
                float(slots * subject.rules.state_bytes),
            )


def _rows(
    problem: Problem, pools: Iterable[tuple[float, float | None]], options: BoundOptions
) -> Iterator[list[object]]:
    for kv_bytes, state_bytes in pools:
        start_s = time.perf_counter()
        found: Bracket = bracket(problem, kv_bytes, state_bytes, num_steps=options.num_steps)
        yield [
            int(kv_bytes + (state_bytes or 0)),
            "" if state_bytes is None else int(state_bytes),
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
