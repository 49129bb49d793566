"""Plans for the research cache: each policy with its split, exact where one pass can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.planner import (
    Marginal,
    SplitRules,
    ceiling,
    longest_request,
    marginal,
    memory_for,
    rate_at,
)
from hybridsim.analysis.steps import Surface
from hybridsim.plan.bench import Bench, Settings, Trial
from hybridsim.plan.common import (
    gains_by_replay,
    needed_split,
    pools_of,
    surfaces,
    tidy_fraction,
)
from hybridsim.plan.result import Gain, MemoryPlan, OnePass, TargetPlan
from hybridsim.plan.search import best_of, better, climb
from hybridsim.policies import make_checkpoint
from hybridsim.request import Request

ALWAYS: tuple[Any, ...] = (
    "prompt_end",
    {"name": "every", "tokens": 1024},
    {"name": "every", "tokens": 4096},
    "all_blocks",
    "sqrt",
    "log",
    {"name": "balanced", "states": 4},
    "branch",
    "prompt_end+branch",
    {"name": "retention", "tokens": 0},
)
WITH_OUTPUTS: tuple[Any, ...] = ("turn_end", "prompt_end+turn_end", "marconi")


def candidates(requests: Sequence[Request]) -> dict[str, Any]:
    """Label -> `cache.checkpoint`. Those that save in outputs, or at marks, only where there are
    any."""
    values = list(ALWAYS)
    if any(request.output.num_known_tokens for request in requests):
        values += WITH_OUTPUTS
    if any(request.marks for request in requests):
        values.append("marked")
    return {label_of(value): value for value in values}


def label_of(value: Any) -> str:
    """`every(tokens=1024)`, as experiments write it in tables."""
    if isinstance(value, str):
        return value
    options = ", ".join(f"{key}={given}" for key, given in value.items() if key != "name")
    return f"{value['name']}({options})" if options else str(value["name"])


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where the search for one policy's split has come to."""

    trial: Trial
    fraction: float


class ResearchPlanner:
    """Holds the surfaces, so that several memories share one pass a policy."""

    def __init__(
        self, bench: Bench, rules: CacheRules, policies: Mapping[str, Any], step: float
    ) -> None:
        self.bench, self.step, self.policies = bench, step, dict(policies)
        requests = list(bench.requests)
        made = {name: make_checkpoint(value, "--checkpoint") for name, value in policies.items()}
        self.rules: SplitRules = longest_request(
            requests, rules.page_tokens, rules.kv_bytes_per_token, rules.state_bytes
        )
        self.surfaces: dict[str, Surface] = surfaces(requests, rules, made, bench.num_warmup)
        # Where the search for policies that one pass cannot tell begins.
        guides = self.surfaces or surfaces(
            requests, rules, {"prompt_end": make_checkpoint("prompt_end")}, bench.num_warmup
        )
        self._guide_label, self._guide = next(iter(guides.items()))

    def plan(self, memory_bytes: int) -> MemoryPlan:
        """Best split of each policy, then the best policy, then a climb from there by replay."""
        stands = {label: self._stand(label, memory_bytes) for label in self.policies}
        winner = best_of([stand.trial for stand in stands.values()])
        label = next(name for name, stand in stands.items() if stand.trial is winner)
        fraction, around = climb(
            self.bench, winner, stands[label].fraction, self.step, _with_fraction
        )
        by_policy = {name: stand.trial for name, stand in stands.items()}
        by_policy[label] = around.at
        one_pass = self._one_pass(label, memory_bytes, around.at)
        return MemoryPlan(
            memory_bytes,
            label,
            around.at,
            by_policy,
            fraction,
            around,
            one_pass,
            gains=self._gains(label, memory_bytes, around.at),
            notes=self._notes(memory_bytes, around.at),
        )

    def reach(self, target: float) -> TargetPlan:
        """Over the policies that one pass can tell; exact by their curves."""
        top = max((ceiling(surface) for surface in self.surfaces.values()), default=0.0)
        best: TargetPlan | None = None
        for label, surface in self.surfaces.items():
            split = memory_for(surface, target, self.rules)
            if split is None:
                continue
            if best is None or split.memory_bytes < (best.memory_bytes or 0):
                best = TargetPlan(target, split.memory_bytes, top, True, label)
        return best or TargetPlan(target, None, top, True)

    def _stand(self, label: str, memory_bytes: int) -> _Stand:
        """The policy's best split: from its surface, or by replays that start at a relative's."""
        surface = self.surfaces.get(label, self._guide)
        split = needed_split(surface, memory_bytes, self.rules)
        fraction = tidy_fraction(surface, split, self.rules)
        trial = self.bench.run(self._settings(label, memory_bytes, fraction))
        if label in self.surfaces:
            return _Stand(trial, fraction)
        stand = _Stand(trial, fraction)
        for other in (fraction / 3, (1 + fraction) / 2):
            tried = self.bench.attempt(self._settings(label, memory_bytes, other))
            if tried is not None and better(tried, stand.trial):
                stand = _Stand(tried, other)
        found, around = climb(
            self.bench, stand.trial, stand.fraction, 2 * self.step, _with_fraction
        )
        return _Stand(around.at, found)

    def _settings(self, label: str, memory_bytes: int, fraction: float) -> Settings:
        return {
            "cache.memory": memory_bytes,
            "cache.state_fraction": fraction,
            "cache.checkpoint": self.policies[label],
        }

    def _one_pass(self, label: str, memory_bytes: int, best: Trial) -> OnePass:
        surface = self.surfaces.get(label, self._guide)
        split = needed_split(surface, memory_bytes, self.rules)
        pools = pools_of(best, self.bench.model.kv_bytes_per_token)
        is_exact = label in self.surfaces
        name = label if is_exact else self._guide_label
        return OnePass(name, surface, split, pools, rate_at(surface, pools), is_exact)

    def _gains(self, label: str, memory_bytes: int, best: Trial) -> list[Gain]:
        if label not in self.surfaces:
            return gains_by_replay(
                self.bench, best, memory_bytes, lambda size: {**best.settings, "cache.memory": size}
            )
        surface = self.surfaces[label]
        found: Marginal = marginal(
            surface, needed_split(surface, memory_bytes, self.rules), self.rules
        )
        return [
            Gain("split anew", found.best_points),
            Gain("all to KV", found.kv_points),
            Gain("all to states", found.state_points),
        ]

    def _notes(self, memory_bytes: int, best: Trial) -> list[str]:
        notes = [
            f"{name} looks at what is resident: its split was searched by replay, not exhaustively"
            for name in self.policies
            if name not in self.surfaces
        ]
        if best.num_refused:
            notes.append(f"{best.num_refused} requests never fit into this memory and are refused")
        return notes


def _with_fraction(settings: Settings, fraction: float) -> Settings:
    return {**settings, "cache.state_fraction": round(fraction, 6)}
