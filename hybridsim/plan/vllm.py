"""Plans for vLLM: one pool of equal blocks, so no split, but what a block is and what stays."""

from collections.abc import Mapping, Sequence
from typing import Any

from hybridsim.build.vllm import layout_of, options_of
from hybridsim.engines.vllm.layout import Layout
from hybridsim.engines.vllm.options import VLLMOptions
from hybridsim.errors import UserError
from hybridsim.plan.bench import Bench, Settings, Trial
from hybridsim.plan.common import gains_by_replay, reach_by_replay
from hybridsim.plan.result import MemoryPlan, TargetPlan
from hybridsim.plan.search import descend
from hybridsim.units import format_bytes

_BUDGET, _BLOCK = "engine.max_num_batched_tokens", "engine.user_block_size"
_RETENTION, _UNIT = "engine.retention", "engine.prefix_match_unit"
_LENGTH, _MODE = "engine.max_model_len", "engine.mamba_mode"
_FLAGS = {
    _MODE: "--mamba-cache-mode",
    _RETENTION: "prefix_cache_retention_interval",
    _UNIT: "prefix_match_unit",
    _BLOCK: "--block-size",
    _BUDGET: "--max-num-batched-tokens",
    _LENGTH: "--max-model-len",
}
_FLAGS_BEFORE = {**_FLAGS, _RETENTION: "VLLM_PREFIX_CACHE_RETENTION_INTERVAL (environment)"}
_DEFAULT_LENGTH = 32768
_ALIGNMENT = 16


class VLLMPlanner:
    """Settings are tried one key after another; every number is a replay of the engine."""

    def __init__(self, bench: Bench, version: str) -> None:
        self.bench, self.version = bench, version
        longest = max(r.num_prompt_tokens + max(r.num_output_tokens, 1) for r in bench.requests)
        bench.fixed.setdefault(_LENGTH, max(_DEFAULT_LENGTH, longest + 1))
        self.layout = self._layout({})
        self._best: Trial | None = None

    def plan(self, memory_bytes: int) -> MemoryPlan:
        """Retention, unit, block size and step budget, in this order."""
        try:
            baseline = self.bench.run({"cache.memory": memory_bytes})
        except UserError as error:
            place = "--memory" if error.place == "cache.memory" else error.place
            raise UserError(place, error.message) from None
        best = self._best = descend(self.bench, baseline, self.axes())
        tried = [t for t in self.bench.trials if t.settings["cache.memory"] == memory_bytes]
        layout = self._layout(best.settings)
        return MemoryPlan(
            memory_bytes,
            label_of(best, self.bench.fixed),
            best,
            {label_of(trial, self.bench.fixed): trial for trial in tried},
            baseline=baseline,
            gains=gains_by_replay(self.bench, best, memory_bytes, self._grown),
            flags=self._flags(best, layout),
            notes=self._notes(best, layout),
        )

    def reach(self, target: float) -> TargetPlan:
        """By replays with the settings of the last plan."""
        if self._best is None:
            start = 64 * self.layout.bytes_per_block
            self.plan(start)
        assert self._best is not None
        start = int(self._best.settings["cache.memory"])
        label = label_of(self._best, self.bench.fixed)
        found = reach_by_replay(self.bench, target, label, start, self._grown)
        top = max(trial.token_hit_rate for trial in self.bench.trials)
        return TargetPlan(target, top, replayed=found)

    def axes(self) -> Mapping[str, Sequence[Any]]:
        """Values by key; intervals are multiples of both block sizes, units divide them."""
        block = self.layout.block_size
        units = [u for u in (block // 2, block // 4, _ALIGNMENT) if self._is_unit(u)]
        intervals = [0, None, 2 * block, 8 * block]
        if self.version == "0.27.1":
            intervals = [None, 0, 2 * block, 8 * block]
        return {
            **({_MODE: ["align", "all"]} if self.version == "0.27.1" else {}),
            _RETENTION: intervals,
            _UNIT: [None, *dict.fromkeys(units)],
            _BLOCK: [_ALIGNMENT, 2 * block],
            _BUDGET: [8192, 2048, 16384],
        }

    def _is_unit(self, unit: int) -> bool:
        return unit > 0 and self.layout.block_size % unit == 0 and unit % _ALIGNMENT == 0

    def _layout(self, settings: Settings) -> Layout:
        return layout_of(self.bench.model, self._options(settings))

    def _options(self, settings: Settings) -> VLLMOptions:
        whole = {**self.bench.fixed, **settings}
        given = {
            key.removeprefix("engine."): value
            for key, value in whole.items()
            if key.startswith("engine.")
        }
        return options_of(self.version, given)

    def _grown(self, memory_bytes: int) -> Settings:
        assert self._best is not None
        return {**self._best.settings, "cache.memory": memory_bytes}

    def _flags(self, best: Trial, layout: Layout) -> dict[str, str]:
        """The budget of a step is always named: a server sets its own by GPU."""
        flags = _FLAGS_BEFORE if self.version == "0.27.1" else _FLAGS
        budget = self._options(best.settings).max_num_batched_tokens
        chosen = {**best.settings, _BUDGET: budget}
        return {
            **{flag: _told(chosen[key]) for key, flag in flags.items() if key in chosen},
            "block size that follows": f"{layout.block_size} tokens",
            "--num-gpu-blocks-override": str(best.capacity.num_blocks),
        }

    def _notes(self, best: Trial, layout: Layout) -> list[str]:
        notes = [
            f"one pool: a state takes the {format_bytes(layout.bytes_per_block)} of a block in "
            f"each of {layout.num_mamba_groups} groups, and there is no split to choose",
            "settings were searched one after another by replay, not exhaustively",
            *[f"not allowed: {reason}" for reason in dict.fromkeys(self.bench.refused.values())],
            *best.outcome,
        ]
        if best.num_refused:
            notes.append(f"{best.num_refused} requests are refused in this memory")
        return notes


def _told(value: Any) -> str:
    return "None (unset)" if value is None else str(value)


def label_of(trial: Trial, fixed: Mapping[str, Any]) -> str:
    """What is set besides the memory and what every trial has."""
    named = [
        f"{key.removeprefix('engine.')}={value}"
        for key, value in trial.settings.items()
        if key.startswith("engine.") and key not in fixed
    ]
    return ", ".join(named) or "defaults"
