"""What a user may set of the engine, under the engine's own names; no behaviour, only checks."""

import math
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from hybridsim.errors import UserError, unknown_name


class Strategy(StrEnum):
    """Where states are saved (`--mamba-radix-cache-strategy`)."""

    NO_BUFFER = "no_buffer"
    EXTRA_BUFFER = "extra_buffer"
    EXTRA_BUFFER_LAZY = "extra_buffer_lazy"


AUTO = "auto"
_TLRU = ("tlru_threshold", "tlru_next_prompt_estimate")
EVICTION_POLICIES = ("lru", "lfu", "slru", "priority", "tlru", "fifo", "mru", "filo")


@dataclass(frozen=True, slots=True)
class SGLangOptions:
    """Options of one server. Counts are tokens, slots or states.

    strategy: `auto` is resolved as the server does for a model that supports the extra buffer.
    kv_tokens: KV pool; state_slots: usable slots of the state pool; page_size: tokens a KV page.
    track_interval: decode checkpoints; chunk_size: the model's own chunk of the linear layers.
    chunked_prefill_size: tokens of one prefill chunk, 0 or less for no chunking.
    overlap: overlap scheduling, which gives the extra buffer its second tracking slot.
    max_states_per_path: soft cap of states on one root-to-leaf path, -1 for none.
    int8_ckpt: keep the tree's states in a pool of their own of int8_ckpt_size slots (None: twice
    the state slots). skip_decode_lock: do not lock the state a request last saved.
    tlru_threshold, tlru_next_prompt_estimate: parameters of the tlru policy, in tokens.
    sliding_window, swa_tokens: tokens of the attention window and of its KV pool; None: the model
    has no sliding-window layers. radix: False switches prefix caching off.
    """

    kv_tokens: int = 4096
    state_slots: int = 64
    page_size: int = 1
    strategy: Strategy = Strategy.EXTRA_BUFFER
    track_interval: int = 256
    chunk_size: int = 64
    chunked_prefill_size: int = 8192
    overlap: bool = True
    eviction_policy: str = "lru"
    max_states_per_path: int = -1
    int8_ckpt: bool = False
    int8_ckpt_size: int | None = None
    skip_decode_lock: bool = False
    tlru_threshold: int = 0
    tlru_next_prompt_estimate: int = 0
    sliding_window: int | None = None
    swa_tokens: int | None = None
    radix: bool = True

    def __post_init__(self) -> None:
        self._resolve_strategy()
        if self.eviction_policy not in EVICTION_POLICIES:
            allowed = list(EVICTION_POLICIES)
            raise unknown_name("engine.eviction_policy", self.eviction_policy, allowed)
        for name in ("kv_tokens", "state_slots", "page_size"):
            _require_positive(f"cache.{name}", getattr(self, name))
        for name in ("track_interval", "chunk_size"):
            _require_positive(f"engine.{name}", getattr(self, name))
        for name in ("int8_ckpt_size", "sliding_window", "swa_tokens"):
            if getattr(self, name) is not None:
                _require_positive(f"engine.{name}", getattr(self, name))
        for name in ("chunked_prefill_size", "max_states_per_path", *_TLRU):
            _require_integer(f"engine.{name}", getattr(self, name))
        for name in ("overlap", "int8_ckpt", "skip_decode_lock", "radix"):
            if not isinstance(getattr(self, name), bool):
                value = getattr(self, name)
                raise UserError(f"engine.{name}", f"{value!r}; allowed: true or false")
        self._check_combinations()

    def _resolve_strategy(self) -> None:
        """`auto` is the extra buffer wherever no_buffer would cost overlap or pages."""
        strategy: str = self.strategy
        if strategy == AUTO:
            buffered = self.overlap or self.page_size != 1
            strategy = Strategy.EXTRA_BUFFER if buffered else Strategy.NO_BUFFER
        if strategy not in list(Strategy):
            raise unknown_name("engine.strategy", strategy, [AUTO, *Strategy])
        object.__setattr__(self, "strategy", Strategy(strategy))

    def _check_combinations(self) -> None:
        if self.max_states_per_path < -1 or self.max_states_per_path == 0:
            raise UserError(
                "engine.max_states_per_path",
                f"{self.max_states_per_path}; allowed: -1 for no cap, or a positive number",
            )
        if self.kv_tokens < self.page_size:
            raise UserError(
                "cache.kv_tokens",
                f"{self.kv_tokens}; allowed: at least one page of {self.page_size} tokens",
            )
        if self.strategy is Strategy.NO_BUFFER and self.page_size != 1:
            raise UserError(
                "cache.page_size",
                f"{self.page_size} with strategy no_buffer; allowed: 1 (a state is saved at the "
                "exact end of a sequence only, which a larger page cannot name)",
            )
        if self.strategy is Strategy.EXTRA_BUFFER_LAZY and not self.overlap:
            raise UserError(
                "engine.overlap", "false with strategy extra_buffer_lazy; allowed: true"
            )
        if self.track_interval % self.page_size:
            raise UserError(
                "engine.track_interval",
                f"{self.track_interval}; allowed: multiples of cache.page_size={self.page_size}",
            )
        if (self.sliding_window is None) != (self.swa_tokens is None):
            raise UserError(
                "engine.swa_tokens", "sliding_window and swa_tokens must be given together"
            )
        if self.sliding_window is not None and self.swa_tokens is not None:
            least = self.sliding_window + self.page_size
            if self.swa_tokens <= least:
                raise UserError(
                    "engine.swa_tokens",
                    f"{self.swa_tokens}; allowed: above {least}, the window and one page",
                )
            if not self.radix:
                raise UserError(
                    "engine.radix", "false with a sliding window; allowed: true (not modelled)"
                )

    @property
    def extra_buffer(self) -> bool:
        """Whether requests have tracking slots."""
        return self.radix and self.strategy is not Strategy.NO_BUFFER

    @property
    def lazy(self) -> bool:
        """Whether the second tracking slot is taken only at a decode boundary."""
        return self.radix and self.strategy is Strategy.EXTRA_BUFFER_LAZY

    @property
    def num_track_slots(self) -> int:
        """Tracking slots a request takes at admission."""
        if not self.extra_buffer:
            return 0
        return 2 if self.overlap and not self.lazy else 1

    @property
    def state_chunk_tokens(self) -> int:
        """Tokens between positions at which prefill can hand out a state."""
        return max(self.chunk_size, self.page_size)

    @property
    def grid_tokens(self) -> int:
        """Depths at which the tree can name a checkpoint saved in prefill."""
        return math.lcm(self.state_chunk_tokens, self.page_size)

    @property
    def decode_grid_tokens(self) -> int:
        """Depths at which decode saves a state: 100 on a grid of 64 really means 1600."""
        return math.lcm(self.grid_tokens, self.track_interval)

    @property
    def num_checkpoint_slots(self) -> int:
        """Slots in which the tree keeps its states."""
        if not self.int8_ckpt:
            return self.state_slots
        return self.int8_ckpt_size or 2 * self.state_slots


def options_from(mapping: dict[str, Any]) -> SGLangOptions:
    """Options from a config mapping; an unknown key is a UserError that lists the known ones."""
    known = [field.name for field in fields(SGLangOptions)]
    for key in mapping:
        if key not in known:
            raise unknown_name(f"engine.{key}", key, known)
    return SGLangOptions(**mapping)


def _require_integer(place: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UserError(place, f"{value!r}; allowed: a whole number")


def _require_positive(place: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise UserError(place, f"{value!r}; allowed: a positive whole number")
