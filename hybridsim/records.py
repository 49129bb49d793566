"""What a run writes down: one record a request, one a step. Column names are the contract."""

from dataclasses import dataclass, field
from enum import StrEnum


class HitSource(StrEnum):
    """Where the reused state had been saved, as seen by the request that saved it."""

    NONE = "none"
    PREFIX = "prefix"  # inside its prompt: a branch point, an interval, a block
    PROMPT_END = "prompt_end"
    OUTPUT = "output"  # behind its prompt: a turn's end, an interval in decode
    KV_ONLY = "kv_only"  # attention-only model: resident KV is enough


class MissReason(StrEnum):
    """The main reason why a request reused less than an infinite cache could have given it."""

    NONE = "none"  # everything reusable was reused
    COLD = "cold"  # nothing cached before
    BELOW_BLOCK = "below_block"  # shared part shorter than one block
    IN_UNIQUE_TOKENS = "in_unique_tokens"  # the checkpoint lies in unique tokens
    NEVER_SAVED = "never_saved"  # the policy saves no states
    STATE_EVICTED = "state_evicted"  # KV is still there
    KV_EVICTED = "kv_evicted"
    FIRST_FORK = "first_fork"  # the second touch pays, the third hits
    ALIGNMENT = "alignment"  # remainder below the grid
    DRAFTER_DROP = "drafter_drop"
    NO_CONTENT = "no_content"
    REFUSED = "refused"  # the request can never fit


# Reasons for which tokens are lost, in the order in which tables and figures show them.
LOSS_REASONS = (
    MissReason.BELOW_BLOCK,
    MissReason.ALIGNMENT,
    MissReason.DRAFTER_DROP,
    MissReason.FIRST_FORK,
    MissReason.IN_UNIQUE_TOKENS,
    MissReason.NEVER_SAVED,
    MissReason.STATE_EVICTED,
    MissReason.KV_EVICTED,
)


@dataclass(slots=True)
class RequestRecord:
    """One row of requests.parquet. Timed columns stay None in replay mode.

    `lost_tokens`: tokens that an infinite cache would have hit as well, by the reason why they
    were not; they add up to that cache's hit minus `num_hit_tokens`. `miss_reason` is the main one.
    """

    request_id: str
    session_id: str | None
    num_prompt_tokens: int
    num_output_tokens: int
    num_match_tokens: int = 0
    num_hit_tokens: int = 0
    hit_source: str = HitSource.NONE
    miss_reason: str = MissReason.NONE
    num_evicted_tokens: int = 0
    num_evicted_states: int = 0
    num_checkpoints: int = 0
    lost_tokens: dict[MissReason, int] = field(default_factory=dict)
    arrival_s: float | None = None
    scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    num_preemptions: int = 0


# Of RequestRecord; replay has no clock, so its rows lack them.
TIMED_COLUMNS = ("arrival_s", "scheduled_s", "first_token_s", "finished_s", "num_preemptions")


@dataclass(slots=True)
class StepRecord:
    """One row of steps.parquet: an engine step, or `num_steps` equal decode steps taken at once."""

    start_s: float
    duration_s: float
    num_steps: int
    num_running: int
    num_waiting: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_copied_bytes: int
    kv_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class BatchChange:
    """A request enters the batch, with memory for its prompt, or leaves it and gives that back.

    `request`: its index; `step`: engine steps (or leaps) done before, so that requests of one
    number enter together. A request that is preempted leaves, and enters again later.
    """

    request: int
    enters: bool
    step: int
