"""What a planner answers. Rates are token hit rates, points are hundredths of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hybridsim.analysis.planner import Marginal, Pools, Split
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
    it is a relative whose optimum was only where the search began. `gains`: of one GiB more, at the
    best split of one pass.
    """

    label: str
    surface: Surface
    split: Split
    pools: Pools
    rate: float
    is_exact: bool
    gains: Marginal


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
    for one pool. `flags`: what to pass to the engine's server. `bound`: what no policy and no split
    passes in this memory, where that is known.
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
    bound: float | None = None

    @property
    def memory_text(self) -> str:
        """The memory as people write it."""
        return format_bytes(self.memory_bytes)


@dataclass(frozen=True, slots=True)
class CurveTarget:
    """The least memory by the one-pass curve of a policy: one page less misses the target."""

    label: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class ReplayedTarget:
    """A memory whose replay reaches the target, and a smaller one (at most 4 %) whose does not.

    An engine's rate need not rise with memory, so that a still smaller one might reach it too.
    """

    label: str
    memory_bytes: int
    misses_bytes: int
    token_hit_rate: float


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The memory that a target hit rate needs; neither answer where it is not reachable.

    `ceiling`: what unlimited memory gives. `curve` only where one pass can tell.
    """

    target: float
    ceiling: float
    curve: CurveTarget | None = None
    replayed: ReplayedTarget | None = None


class Planner(Protocol):
    """Plans for one engine."""

    def plan(self, memory_bytes: int) -> MemoryPlan:
        """UserError at `--memory` for a size in which nothing can be cached."""
        ...

    def reach(self, target: float) -> TargetPlan: ...
