"""Settings in, hit rates out: each trial replays the trace through an engine's own cache."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hybridsim.analysis.ideal import ideal_hit_tokens
from hybridsim.build import ENGINES, Built, Capacity
from hybridsim.config import CacheConfig, validate
from hybridsim.errors import UserError, unknown_name
from hybridsim.models import ModelSpec
from hybridsim.records import MissReason, RequestRecord
from hybridsim.request import Request

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """One replay. `settings`: dotted config keys (`cache.memory`, `engine.strategy`) to values.

    `first_half`, `second_half`: hit rates of the halves of the measured requests, the second with
    a cache that the first has filled. `outcome`: what no number tells, such as the engine's death.
    """

    settings: Settings = field(hash=False)
    token_hit_rate: float
    first_half: float
    second_half: float
    num_refused: int
    num_evicted: int
    capacity: Capacity
    outcome: tuple[str, ...]


class Bench:
    """Replays one trace under many settings of one engine and remembers what came out.

    `fixed`: settings of every trial. `on_trial` hears of each new one, `refused` lists settings
    that the engine does not allow, with its reason. The laws of the cache are checked each time.
    """

    def __init__(
        self,
        engine: str,
        model: ModelSpec,
        requests: Sequence[Request],
        num_warmup: int = 0,
        fixed: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        if engine not in ENGINES:
            raise unknown_name("--engine", engine, list(ENGINES))
        self.engine, self.model, self.requests = engine, model, requests
        self.num_warmup, self.fixed, self.seed = num_warmup, dict(fixed or {}), seed
        self.on_trial: Callable[[Trial, float], None] = lambda trial, wall_s: None
        self.refused: dict[str, str] = {}
        self._trials: dict[str, Trial] = {}
        self._ideal: dict[bool, list[int]] = {}

    @property
    def trials(self) -> list[Trial]:
        """All so far, in the order in which they were run."""
        return list(self._trials.values())

    def run(self, settings: Mapping[str, Any]) -> Trial:
        """Replay, unless these settings were replayed before. UserError names a bad one."""
        whole = {**self.fixed, **settings}
        key = _key(whole)
        if key not in self._trials:
            start_s = time.perf_counter()
            self._trials[key] = self._replay(whole)
            self.on_trial(self._trials[key], time.perf_counter() - start_s)
        return self._trials[key]

    def attempt(self, settings: Mapping[str, Any]) -> Trial | None:
        """As `run`, but None where the engine does not allow the settings."""
        try:
            return self.run(settings)
        except UserError as error:
            self.refused[_key({**self.fixed, **settings})] = str(error)
            return None

    def build(self, settings: Mapping[str, Any]) -> Built:
        """A fresh cache of the engine."""
        cache, options = _parted({**self.fixed, **settings})
        engine = ENGINES[self.engine]
        for key in cache:
            if key not in engine.cache_keys:
                raise UserError(f"cache.{key}", f"engine {self.engine} has no use for it")
        return engine.build(
            validate(CacheConfig, cache, "cache"),
            self.model,
            validate(engine.options, options, "engine"),
        )

    def _replay(self, settings: Settings) -> Trial:
        built = self.build(settings)
        built.prepare(self.requests, self.seed)
        records = built.replay(self.requests, self._ideals(built.keeps_outputs), _silent)
        half = (self.num_warmup + len(records)) // 2
        return Trial(
            settings,
            _rate(records[self.num_warmup :]),
            _rate(records[self.num_warmup : half]),
            _rate(records[half:]),
            sum(record.miss_reason == MissReason.REFUSED for record in records),
            sum(record.num_evicted_tokens + record.num_evicted_states for record in records),
            built.capacity,
            tuple(built.outcome()),
        )

    def _ideals(self, outputs: bool) -> list[int]:
        if outputs not in self._ideal:
            ideal = ideal_hit_tokens(self.requests, keeps_outputs=outputs, caps_last_token=True)
            self._ideal[outputs] = ideal.tolist()
        return self._ideal[outputs]


def _rate(records: Sequence[RequestRecord]) -> float:
    num_prompt_tokens = sum(record.num_prompt_tokens for record in records)
    return sum(record.num_hit_tokens for record in records) / max(num_prompt_tokens, 1)


def _parted(settings: Settings) -> tuple[Settings, Settings]:
    parts: dict[str, Settings] = {"cache": {}, "engine": {}}
    for key, value in settings.items():
        room, _, name = key.partition(".")
        parts[room][name] = value
    return parts["cache"], parts["engine"]


def _key(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True, default=str)


def _silent(num_done: int, num_all: int) -> None:
    """The bench tells of whole trials only."""
