"""What the engine decided about one request: plain records, no behaviour."""

from dataclasses import dataclass, field
from enum import StrEnum

from hybridsim.engines.sglang.eviction import Eviction
from hybridsim.records import HitSource


class Outcome(StrEnum):
    """How a request ended."""

    SERVED = "served"
    REFUSED = "refused"  # the scheduler keeps it waiting: it does not fit next to what is locked
    DIED = "died"  # an assertion of the engine fails, which ends the server


class Death(StrEnum):
    """The check in the engine that fails; nothing after it is served."""

    COPY_SLOT = "no state slot for the copy of the matched state"
    LIVE_SLOT = "no state slot for the request's own state"
    TRACK_SLOTS = "no state slots for the request's tracking buffer"
    CHECKPOINT_SLOT = "no state slot to replace or take a saved state"
    INT8_SLOT = "no slot in the int8 checkpoint pool"
    PREFILL_KV = "no KV memory for a prefill chunk"
    DECODE_KV = "no KV memory for a decode step"
    BEFORE = "the engine had died before"


class EngineDied(Exception):
    """Raised inside a run where the engine's own process would end."""

    def __init__(self, death: Death) -> None:
        super().__init__(f"the engine would die here: {death}")
        self.death = death


@dataclass(frozen=True, slots=True)
class Tracked:
    """A position at which the request's state was written to one of its tracking slots.

    from_inside: taken from the states between the chunks of the prefill kernel, which are kept at
    the precision of activations, and not from the state in which the kernel ended.
    """

    position: int
    phase: str  # prefill1, prefill2, ..., decode
    from_inside: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """The pools after a request: tokens of KV and numbers of states."""

    kv_free: int
    kv_evictable: int
    kv_cached: int
    state_free: int
    state_evictable: int
    states_cached: int


@dataclass(slots=True)
class Decision:
    """All that was decided about one request.

    num_match_tokens: KV found, as far as the lookup may look. num_hit_tokens: really reused.
    branch: position at which the prompt leaves the tree, on the grid, None when at the hit.
    saved: positions at which the tree took a state. peak_slots: most slots the request held.
    needed_tokens, available_tokens: the admission sum of a refused request.
    """

    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int
    outcome: Outcome = Outcome.SERVED
    death: Death | None = None
    num_match_tokens: int = 0
    num_hit_tokens: int = 0
    hit_source: HitSource = HitSource.NONE
    branch: int | None = None
    num_chunks: int = 0
    tracked: list[Tracked] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    peak_slots: int = 0
    needed_tokens: int = 0
    available_tokens: int = 0
    after: Usage | None = None

    @property
    def num_evicted_tokens(self) -> int:
        return sum(eviction.got_tokens for eviction in self.evictions)

    @property
    def num_evicted_states(self) -> int:
        return sum(eviction.got_states for eviction in self.evictions)
