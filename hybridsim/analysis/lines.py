"""Which policies a curve or a grid is of, from the runs of an experiment and the command line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import orjson

from hybridsim.config import Named, RunConfig, parse_value
from hybridsim.policies import make_checkpoint, make_eviction, make_thinning
from hybridsim.policies.base import EvictionPolicy, Thinning
from hybridsim.policies.checkpoint.base import CheckpointPolicy


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a grid: policies as texts, `name` or a YAML mapping with a name."""

    checkpoint: str
    eviction: str = "lru"
    thinning: str | None = None

    @property
    def label(self) -> str:
        """The checkpoint policy, and what is not as usual."""
        others = [self.eviction if self.eviction != "lru" else None, self.thinning]
        return ", ".join([self.checkpoint, *[other for other in others if other]])

    def make_checkpoint(self) -> CheckpointPolicy:
        """A fresh policy; UserError at `--checkpoint`."""
        return make_checkpoint(parse_value(self.checkpoint, "--checkpoint"), "--checkpoint")

    def make_eviction(self) -> EvictionPolicy:
        """A fresh policy; UserError at `--eviction`."""
        return make_eviction(parse_value(self.eviction, "--eviction"), "--eviction")

    def make_thinning(self) -> Thinning | None:
        """A fresh rule; UserError at `--thinning`."""
        return make_thinning(parse_value(self.thinning or "null", "--thinning"), "--thinning")


def policy_of_text(text: str) -> tuple[str, CheckpointPolicy]:
    """`prompt_end`, `prompt_end+turn_end`, or `{name: every, tokens: 1024}`."""
    return text, make_checkpoint(parse_value(text, "--checkpoint"), "--checkpoint")


def lru_policies(runs: Iterable[RunConfig]) -> tuple[dict[str, CheckpointPolicy], tuple[str, ...]]:
    """The checkpoint policies of the runs; what one pass does not know is left out and noted."""
    policies: dict[str, CheckpointPolicy] = {}
    notes: dict[str, None] = {}
    for run in runs:
        eviction, thinning = run.cache.eviction, run.cache.thinning
        if eviction.name != "lru" or eviction.options.get("refresh", "path") != "path":
            notes[f"left out: eviction {eviction} (curves are of lru; --grid takes it)"] = None
        elif thinning is not None:
            notes[f"left out: thinning {thinning} (--grid takes it)"] = None
        else:
            policies[str(run.cache.checkpoint)] = make_checkpoint(run.cache.checkpoint.plain)
    return policies, tuple(notes)


def grid_lines(
    runs: Iterable[RunConfig],
    checkpoints: Sequence[str] = (),
    evictions: Sequence[str] = (),
    thinnings: Sequence[str] = (),
) -> tuple[Line, ...]:
    """Each set of policies once; those of the command line in the place of the runs'.

    UserError names an option that is no policy.
    """
    found: dict[Line, None] = {}
    for run in runs:
        cache = run.cache
        thinning = None if cache.thinning is None else _text(cache.thinning)
        for names in product(
            checkpoints or (_text(cache.checkpoint),),
            evictions or (_text(cache.eviction),),
            thinnings or (thinning,),
        ):
            found[Line(*names)] = None
    for line in found:
        line.make_checkpoint(), line.make_eviction(), line.make_thinning()
    return tuple(found)


def _text(named: Named) -> str:
    """YAML of a policy on one line."""
    value = named.plain
    return value if isinstance(value, str) else orjson.dumps(value).decode()
