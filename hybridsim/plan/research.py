"""Plans for the research cache: each policy with its split, exact where one pass can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.planner import (
    SplitRules,
    ceiling,
    longest_request,
    marginal,
    memory_for,
    rate_at,
)
from hybridsim.analysis.steps import Surface
from hybridsim.plan.bench import Bench, Settings, Trial
from hybridsim.plan.candidates import EVICTIONS, label_of
from hybridsim.plan.common import (
    gains_by_replay,
    needed_split,
    pools_of,
    reach_by_replay,
    surfaces,
    tidy_fraction,
)
from hybridsim.plan.result import CurveTarget, Gain, MemoryPlan, OnePass, TargetPlan
from hybridsim.plan.search import best_of, better, climb, descend
from hybridsim.policies import make_checkpoint

_AGREES = 0.002  # one pass and replay this close: the surface is believed where the split goes
_CONTENDS = 0.15  # policies within this part of the best get their split searched closely
_FAR_BELOW = 0.25
_ELSEWHERE = (0.2, 0.4, 0.6)
EVICTION = "cache.eviction"


@dataclass(frozen=True, slots=True)
class _Stand:
    """Where the search for one policy's split has come to."""

    trial: Trial
    fraction: float


class ResearchPlanner:
    """Holds the surfaces, so that several memories share one pass a policy."""

    def __init__(
        self,
        bench: Bench,
        rules: CacheRules,
        policies: Mapping[str, Any],
        step: float,
        evictions: Sequence[Any] = EVICTIONS,
    ) -> None:
        self.bench, self.step, self.policies = bench, step, dict(policies)
        self.evictions = tuple(evictions)
        requests = list(bench.requests)
        made = {name: make_checkpoint(value, "--checkpoint") for name, value in policies.items()}
        self.rules: SplitRules = longest_request(
            requests, rules.page_tokens, rules.kv_bytes_per_token, rules.state_bytes
        )
        self.surfaces: dict[str, Surface] = surfaces(requests, rules, made, bench.num_warmup)
        self._guides = self.surfaces or surfaces(
            requests, rules, {"prompt_end": make_checkpoint("prompt_end")}, bench.num_warmup
        )

    def plan(self, memory_bytes: int) -> MemoryPlan:
        """A split for each policy, those near the best climb by replay, the winner once more.

        Evictions are tried on the winner alone; a better one climbs again.
        """
        stands, told = self._stands(memory_bytes)
        top = max(stand.trial.token_hit_rate for stand in stands.values())
        for label, stand in stands.items():
            if stand.trial.token_hit_rate >= top * (1 - _CONTENDS):
                stands[label] = self._climbed(stand, 2 * self.step)
        winner = best_of([stand.trial for stand in stands.values()])
        name = next(label for label, stand in stands.items() if stand.trial is winner)
        start = stands[name]
        fraction, around = climb(self.bench, winner, start.fraction, self.step, _with_fraction)
        stands[name] = _Stand(around.at, fraction)
        best = descend(self.bench, around.at, {EVICTION: self.evictions})
        if best is not around.at:
            fraction, around = climb(self.bench, best, fraction, self.step, _with_fraction)
        by_policy = {self._label(label, s.trial): s.trial for label, s in stands.items()}
        by_policy |= self._other_evictions(name, memory_bytes)
        return MemoryPlan(
            memory_bytes,
            self._label(name, around.at),
            around.at,
            by_policy,
            fraction,
            around,
            self._one_pass(name, memory_bytes, around.at),
            gains=self._gains(memory_bytes, around.at),
            notes=[*self._notes(around.at), *told],
        )

    def _label(self, name: str, trial: Trial) -> str:
        """The checkpoint policy, and the eviction if it is not lru."""
        eviction = trial.settings.get(EVICTION, "lru")
        return name if eviction == "lru" else f"{name}, {label_of(eviction)}"

    def _other_evictions(self, name: str, memory_bytes: int) -> dict[str, Trial]:
        """The best trial of each eviction but lru with one checkpoint policy."""
        found: dict[str, Trial] = {}
        for trial in self.bench.trials:
            given = trial.settings
            mine = given.get("cache.checkpoint") == self.policies[name]
            if mine and EVICTION in given and given.get("cache.memory") == memory_bytes:
                label = self._label(name, trial)
                found[label] = best_of([found.get(label, trial), trial])
        return found

    def reach(self, target: float) -> TargetPlan:
        """The curve's memory is exact under the curve's rules; a search by replay stands beside."""
        top = self._ceiling()
        on_curve = self._on_curve(target)
        if on_curve is None and top < target:
            return TargetPlan(target, top)
        start = on_curve.memory_bytes if on_curve else self._most_memory()
        plan = self.plan(start)

        def grown(size: int) -> Settings:
            return {**plan.best.settings, "cache.memory": size}

        replayed = reach_by_replay(self.bench, target, plan.label, start, grown)
        return TargetPlan(target, top, on_curve, replayed)

    def _on_curve(self, target: float) -> CurveTarget | None:
        found = {
            label: memory_for(surface, target, self.rules)
            for label, surface in self.surfaces.items()
        }
        sizes = {label: split.memory_bytes for label, split in found.items() if split}
        if not sizes:
            return None
        label = min(sizes, key=lambda name: sizes[name])
        return CurveTarget(label, sizes[label])

    def _ceiling(self) -> float:
        """The best that unlimited memory gives, over all policies."""
        rates = [ceiling(surface) for surface in self.surfaces.values()]
        for label, value in self.policies.items():
            if label not in self.surfaces:
                settings = {"cache.memory": "unlimited", "cache.checkpoint": value}
                rates.append(self.bench.run(settings).token_hit_rate)
        return max(rates)

    def _most_memory(self) -> int:
        return max(
            surface.range_kv_bytes[1] + (surface.range_slots[1] + 1) * self.rules.state_bytes
            for surface in self._guides.values()
        )

    def _stand(self, label: str, memory_bytes: int) -> _Stand:
        """Replays at the one-pass optimum and, where that is no good witness, elsewhere too."""
        surface = self.surfaces.get(label) or self._guide(memory_bytes)[1]
        split = needed_split(surface, memory_bytes, self.rules)
        fraction = tidy_fraction(surface, split, self.rules)
        trial = self.bench.run(self._settings(label, memory_bytes, fraction))
        stand = _Stand(trial, fraction)
        is_told = label in self.surfaces
        if is_told and abs(trial.token_hit_rate - split.token_hit_rate) <= _AGREES:
            return stand
        for other in _ELSEWHERE:
            tried = self.bench.attempt(self._settings(label, memory_bytes, other))
            if better(tried, stand.trial):
                assert tried is not None
                stand = _Stand(tried, other)
        return stand

    def _stands(self, memory_bytes: int) -> tuple[dict[str, _Stand], list[str]]:
        """Best by one pass first; what one pass puts far below is left out where it was right."""
        splits = {
            label: needed_split(surface, memory_bytes, self.rules).token_hit_rate
            for label, surface in self.surfaces.items()
        }
        order = sorted(self.policies, key=lambda label: -splits.get(label, 0.0))
        stands: dict[str, _Stand] = {}
        left_out, is_right = [], False
        for label in order:
            rate = splits.get(label)
            if rate is not None and is_right and rate < splits[order[0]] * (1 - _FAR_BELOW):
                left_out.append(f"{label} {100 * rate:.2f} %")
                continue
            stands[label] = self._stand(label, memory_bytes)
            if label == order[0] and rate is not None:
                is_right = abs(stands[label].trial.token_hit_rate - rate) <= _AGREES
        note = "far below by one pass, which was right for the best, so not replayed: "
        return stands, [note + ", ".join(left_out)] if left_out else []

    def _climbed(self, stand: _Stand, step: float) -> _Stand:
        fraction, around = climb(self.bench, stand.trial, stand.fraction, step, _with_fraction)
        return _Stand(around.at, fraction)

    def _guide(self, memory_bytes: int) -> tuple[str, Surface]:
        """The policy that does best at this memory among those that one pass can tell."""

        def rate(item: tuple[str, Surface]) -> float:
            return needed_split(item[1], memory_bytes, self.rules).token_hit_rate

        return max(self._guides.items(), key=rate)

    def _settings(self, label: str, memory_bytes: int, fraction: float) -> Settings:
        usual = {} if self.evictions[0] == "lru" else {EVICTION: self.evictions[0]}
        return {
            "cache.memory": memory_bytes,
            "cache.state_fraction": fraction,
            "cache.checkpoint": self.policies[label],
            **usual,
        }

    def _one_pass(self, label: str, memory_bytes: int, best: Trial) -> OnePass:
        name, surface = label, self.surfaces.get(label)
        is_exact = surface is not None and best.settings.get(EVICTION, "lru") == "lru"
        if surface is None:
            name, surface = self._guide(memory_bytes)
        split = needed_split(surface, memory_bytes, self.rules)
        pools = pools_of(best, self.bench.model.kv_bytes_per_token)
        gains = marginal(surface, split, self.rules)
        return OnePass(name, surface, split, pools, rate_at(surface, pools), is_exact, gains)

    def _gains(self, memory_bytes: int, best: Trial) -> list[Gain]:
        def grown(size: int) -> Settings:
            return {**best.settings, "cache.memory": size}

        return gains_by_replay(self.bench, best, memory_bytes, grown)

    def _notes(self, best: Trial) -> list[str]:
        untold = [name for name in self.policies if name not in self.surfaces]
        notes = ["splits were searched by replay from the one-pass optimum, not exhaustively"]
        if untold:
            names = ", ".join(untold)
            notes.append(f"what these save depends on what is resident, so no one pass: {names}")
        if best.num_refused:
            notes.append(f"{best.num_refused} requests never fit into this memory and are refused")
        return notes


def _with_fraction(settings: Settings, fraction: float) -> Settings:
    return {**settings, "cache.state_fraction": round(fraction, 6)}
