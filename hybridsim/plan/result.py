"""What a planner answers. Rates are token hit rates, points are hundredths of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hybridsim.analysis.planner import Pools, Split
from hybridsim.analysis.steps import Surface
from hybridsim.plan.bench import Trial
from hybridsim.plan.search import Neighbours
from hybridsim.units import format_bytes


@dataclass(frozen=True, slots=True)
class OnePass:
    """What one pass says: `split` is its best, `rate` its value at `pools`,
    those that were replayed.

    `label`: the checkpoint policy of the surface. `is_exact`: the surface follows the rules of
    what is planned, so that only pinning and running requests lie between it and a replay; else
    it is a relative whose optimum was only where the search began.
    """

    label: str
    surface: Surface
    split: Split
    pools: Pools
    rate: float
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Gain:
    """Points gained by one GiB more, given to `where`."""

    where: str
    points: float


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The answer for one memory.

    `best`: the trial that won. `by_policy`: label -> best trial of each policy or setting looked
    at. `baseline`: the engine as it comes, where it has defaults. `fraction`: of the states, None
    for one pool. `flags`: what to pass to the engine's server.
    """

    memory_bytes: int
    label: str
    best: Trial
    by_policy: dict[str, Trial]
    fraction: float | None = None
    neighbours: Neighbours | None = None
    one_pass: OnePass | None = None
    baseline: Trial | None = None
    gains: Sequence[Gain] = ()
    flags: dict[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def memory_text(self) -> str:
        """The memory as people write it."""
        return format_bytes(self.memory_bytes)


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The memory that a target hit rate needs.

    `memory_bytes` None: not reachable, `ceiling` is the most there is. `is_exact`: one page less
    misses the target by the one-pass curve; else `misses_bytes` is the largest size known to miss.
    """

    target: float
    memory_bytes: int | None
    ceiling: float
    is_exact: bool
    label: str = ""
    misses_bytes: int | None = None


class Planner(Protocol):
    """Plans for one engine."""

    def plan(self, memory_bytes: int) -> MemoryPlan:
        """UserError at `--memory` for a size in which nothing can be cached."""
        ...

    def reach(self, target: float) -> TargetPlan: ...
