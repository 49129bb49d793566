"""Plans for SGLang: its split by its own flags, its strategies and knobs, all by its own replay."""

from collections.abc import Mapping, Sequence
from typing import Any

from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.planner import Pools, Split, longest_request, marginal, rate_at
from hybridsim.build.sglang import sized_options
from hybridsim.errors import UserError
from hybridsim.plan.bench import Bench, Settings, Trial
from hybridsim.plan.common import (
    gains_by_replay,
    needed_split,
    pools_of,
    reach_by_replay,
    surfaces,
)
from hybridsim.plan.flags import sglang_flags
from hybridsim.plan.result import MemoryPlan, OnePass, TargetPlan
from hybridsim.plan.search import Neighbours, better, climb, descend
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.policies.checkpoint.fixed import Every, PromptEnd
from hybridsim.policies.checkpoint.union import Union

_CHUNK = "engine.chunked_prefill_size"
STRATEGY, SLOTS = "engine.strategy", "engine.max_mamba_cache_size"
# Defaults first. Of the evictions those that the server's command line takes without parameters:
# its code also has fifo, filo and mru, which --radix-eviction-policy refuses.
AXES: Mapping[str, Sequence[Any]] = {
    STRATEGY: ("extra_buffer", "extra_buffer_lazy", "no_buffer"),
    _CHUNK: (8192, 2048, 4096, 16384),
    "engine.max_states_per_path": (-1, 2, 4, 8),
    "engine.eviction_policy": ("lru", "slru", "lfu"),
}
IN_OUTPUTS: Mapping[str, Sequence[Any]] = {"engine.track_interval": (256, 64, 512, 1024)}
_FLAGS = {
    STRATEGY: "--mamba-radix-cache-strategy",
    "engine.track_interval": "--mamba-track-interval",
    _CHUNK: "--chunked-prefill-size",
    "engine.max_states_per_path": "--mamba-max-states-per-path",
    "engine.eviction_policy": "--radix-eviction-policy",
    "cache.page_size": "--page-size",
}


class SGLangPlanner:
    """Searches from the server's own split and from the best one for states at chunk ends."""

    def __init__(self, bench: Bench, rules: CacheRules, step: float) -> None:
        if not rules.state_bytes or not rules.kv_bytes_per_token:
            raise UserError("--model", f"{bench.model.name} is no hybrid; SGLang is for hybrids")
        self.bench, self.step = bench, step
        requests = list(bench.requests)
        self.rules = longest_request(
            requests, rules.page_tokens, rules.kv_bytes_per_token, rules.state_bytes
        )
        self.guide, self._guide_label = _guide(int(bench.fixed.get(_CHUNK, 8192)))
        guides = {self._guide_label: self.guide}
        self.surface = surfaces(requests, rules, guides, bench.num_warmup)[self._guide_label]
        has_outputs = any(request.output.num_known_tokens for request in requests)
        self.axes = {**AXES, **(IN_OUTPUTS if has_outputs else {})}
        self._best: Trial | None = None

    def plan(self, memory_bytes: int) -> MemoryPlan:
        """Knobs and split in turn, from the server's split and from one pass's; the better."""
        baseline = self._baseline(memory_bytes)
        usable = memory_bytes - self.rules.state_bytes  # one slot pads batches
        split = needed_split(self.surface, usable, self.rules)
        share = split.pools.state_slots * self.rules.state_bytes / memory_bytes
        fraction, around = self._searched(baseline, self._fraction(baseline))
        start = self.bench.attempt(self._split({"cache.memory": memory_bytes}, share))
        if start is not None:
            other, found = self._searched(start, share)
            if better(found.at, around.at):
                fraction, around = other, found
        self._best = best = around.at
        pools = pools_of(best, self.bench.model.kv_bytes_per_token)
        return MemoryPlan(
            memory_bytes,
            label_of(best),
            best,
            self._by_policy(memory_bytes),
            fraction,
            around,
            self._one_pass(split, pools),
            baseline,
            gains_by_replay(self.bench, best, memory_bytes, self._grown),
            self._server_flags(memory_bytes, best),
            self._notes(best),
        )

    def _searched(self, start: Trial, fraction: float) -> tuple[float, Neighbours]:
        best = descend(self.bench, start, self.axes)
        fraction, around = climb(self.bench, best, fraction, self.step, self._split)
        if around.at is not best:  # another split may favour other knobs
            best = descend(self.bench, around.at, self.axes)
            fraction, around = climb(self.bench, best, fraction, self.step, self._split)
        return fraction, around

    def _baseline(self, memory_bytes: int) -> Trial:
        """The server's own split. UserError for a memory in which not one request can run."""
        try:
            return self.bench.run({"cache.memory": memory_bytes})
        except UserError as error:
            is_size = error.place.startswith(("sizing.", "cache.memory"))
            place = "--memory" if is_size else error.place
            raise UserError(place, error.message) from None

    def _one_pass(self, split: Split, pools: Pools) -> OnePass:
        surface = self.surface
        gains = marginal(surface, split, self.rules)
        return OnePass(
            self._guide_label, surface, split, pools, rate_at(surface, pools), False, gains
        )

    def reach(self, target: float) -> TargetPlan:
        """By replays with the settings of the last plan, the split's fraction kept."""
        if self._best is None:
            self.plan(4 * (self.rules.longest.kv_bytes + 8 * self.rules.state_bytes))
        assert self._best is not None
        start, label = int(self._best.settings["cache.memory"]), label_of(self._best)
        found = reach_by_replay(self.bench, target, label, start, self._grown)
        return TargetPlan(target, self._ceiling(), replayed=found)

    def _ceiling(self) -> float:
        """The most that any memory gave with these settings."""
        return max(trial.token_hit_rate for trial in self.bench.trials)

    def _split(self, settings: Settings, fraction: float) -> Settings:
        slots = int(settings["cache.memory"] * fraction) // self.rules.state_bytes
        return {**settings, SLOTS: max(slots, 1)}

    def _fraction(self, trial: Trial) -> float:
        slots = trial.capacity.state_slots or 0
        return slots * self.rules.state_bytes / int(trial.settings["cache.memory"])

    def _grown(self, memory_bytes: int) -> Settings:
        assert self._best is not None
        settings = {**self._best.settings, "cache.memory": memory_bytes}
        return self._split(settings, self._fraction(self._best))

    def _by_policy(self, memory_bytes: int) -> dict[str, Trial]:
        found: dict[str, Trial] = {}
        for trial in self.bench.trials:
            if trial.settings.get("cache.memory") == memory_bytes:
                label = label_of(trial)
                if label not in found or trial.token_hit_rate > found[label].token_hit_rate:
                    found[label] = trial
        return found

    def _server_flags(self, memory_bytes: int, best: Trial) -> dict[str, str]:
        """Strategy and chunk size are always named: a server sets its own by backend and GPU."""
        given = {
            key.removeprefix("engine."): value
            for key, value in best.settings.items()
            if key.startswith("engine.") and key != SLOTS
        }
        page_size = int(best.settings.get("cache.page_size", 1))
        options, inputs = sized_options(self.bench.model, memory_bytes, given, page_size)
        assert best.capacity.state_slots is not None
        flags = sglang_flags(options, inputs, best.capacity.state_slots)
        resolved = {STRATEGY: options.strategy.value, _CHUNK: options.chunked_prefill_size}
        chosen = {**best.settings, **resolved}
        return {
            **{flag: str(chosen[key]) for key, flag in _FLAGS.items() if key in chosen},
            "--max-mamba-cache-size": str(flags.max_mamba_cache_size),
            "--mamba-full-memory-ratio": f"{flags.mamba_full_memory_ratio!r} (instead of the size)",
        }

    def _notes(self, best: Trial) -> list[str]:
        notes = [
            "strategy and knobs were searched one after another by replay, not exhaustively",
            *[f"not allowed: {reason}" for reason in dict.fromkeys(self.bench.refused.values())],
            *best.outcome,
        ]
        if "engine.track_interval" not in self.axes:
            notes.append("track interval left out: the trace does not tell the outputs' content")
        if best.num_refused:
            notes.append(f"{best.num_refused} requests are refused in this memory")
        return notes


def _guide(chunk_tokens: int) -> tuple[CheckpointPolicy, str]:
    """States where prefill chunks end: the nearest that one pass can tell."""
    if chunk_tokens <= 0:
        return PromptEnd(), "prompt_end"
    policy = Union((PromptEnd(), Every(chunk_tokens)))
    return policy, f"prompt_end+every(tokens={chunk_tokens})"


def label_of(trial: Trial) -> str:
    """Strategy and the knobs that are not as the server has them."""
    given = trial.settings
    strategy = str(given.get(STRATEGY, AXES[STRATEGY][0]))
    knobs = [
        f"{key.removeprefix('engine.')}={given[key]}"
        for key, values in {**AXES, **IN_OUTPUTS}.items()
        if key != STRATEGY and given.get(key, values[0]) != values[0]
    ]
    return ", ".join([strategy, *knobs])
