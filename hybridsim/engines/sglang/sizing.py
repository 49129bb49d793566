"""How the engine splits its memory at start, how many requests may run, and what says so.

Bytes are those of one rank. Arithmetic follows the engine's, GiB as floats included, because a
slot more or less decides a concurrency cap.
"""

from dataclasses import dataclass

from hybridsim.engines.sglang.options import SGLangOptions, Strategy
from hybridsim.errors import UserError
from hybridsim.units import format_bytes

GIB = 1 << 30
BASE_SLOTS = 3  # reserved for a running request besides its tracking slots
DEFAULT_RATIO = 0.9  # state bytes over KV bytes
FEWEST_ESTIMATED, MOST_ESTIMATED = 2048, 4096  # bounds of the engine's own estimate of requests


@dataclass(frozen=True, slots=True)
class SizingInputs:
    """What decides the split.

    memory_bytes: for KV and states together, after weights and the engine's slack.
    kv_bytes_per_token, state_bytes: of the model on this rank (state: all linear layers).
    ratio: `--mamba-full-memory-ratio`. max_states: `--max-mamba-cache-size`, overrides the ratio.
    max_running: `--max-running-requests`. num_draft_tokens: of speculative decoding, 0 without.
    context_tokens: the model's context length. replay_draft: drafted states are recomputed from
    their inputs, so that no scratch is set aside for them.
    """

    memory_bytes: int
    kv_bytes_per_token: int
    state_bytes: int
    ratio: float = DEFAULT_RATIO
    max_states: int | None = None
    max_running: int | None = None
    num_draft_tokens: int = 0
    context_tokens: int = 262_144
    replay_draft: bool = False

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "kv_bytes_per_token", "state_bytes", "context_tokens"):
            if getattr(self, name) <= 0:
                raise UserError(f"sizing.{name}", f"{getattr(self, name)}; allowed: above 0")
        if self.ratio <= 0:
            raise UserError("sizing.ratio", f"{self.ratio}; allowed: above 0")
        if self.num_draft_tokens and self.max_running is None:
            raise UserError(
                "sizing.max_running", "missing; speculative decoding needs a number of requests"
            )

    @property
    def reserves_scratch(self) -> bool:
        """Whether every running request has a state set aside for each drafted token."""
        return self.num_draft_tokens > 0 and not self.replay_draft


@dataclass(frozen=True, slots=True)
class Sizing:
    """The pools and the cap that follow. `limited_by`: what caps the running requests."""

    state_slots: int
    kv_tokens: int
    scratch_bytes: int
    slots_per_request: int
    max_running: int
    limited_by: str


def slots_per_request(options: SGLangOptions) -> int:
    """Slots that the engine counts for one running request when it caps their number."""
    if not options.radix:
        return 1
    saved = 1 if options.skip_decode_lock else 0
    if options.strategy is Strategy.NO_BUFFER:
        # The peak between prefill and decode needs all three, lock or no lock.
        return BASE_SLOTS
    return BASE_SLOTS - saved + options.num_track_slots


def handoff_slots_per_request(options: SGLangOptions) -> int:
    """Slots of a request on a worker that only decodes what another one has prefilled."""
    return 1 + options.num_track_slots


def handoff_bytes(num_prompt_tokens: int, kv_bytes_per_token: int, state_bytes: int) -> int:
    """Bytes sent from prefill to decode: the state, and KV of all but the last prompt token.

    The decoding worker computes the last token itself.
    """
    return (num_prompt_tokens - 1) * kv_bytes_per_token + state_bytes


def size_pools(options: SGLangOptions, inputs: SizingInputs) -> Sizing:
    """Split the memory. UserError when not even one request could run."""
    per_request = slots_per_request(options)
    slots = _state_slots(options, inputs, per_request)
    if slots <= 0:
        raise UserError(
            "sizing.memory_bytes",
            f"{format_bytes(inputs.memory_bytes)} leaves {slots} state slots of "
            f"{format_bytes(inputs.state_bytes)}; allowed: at least {per_request}",
        )
    scratch = _scratch_bytes(options, inputs, slots, per_request)
    # One slot more than can be used: the engine pads batches with it.
    rest = inputs.memory_bytes / GIB - scratch / GIB - (slots + 1) * inputs.state_bytes / GIB
    kv_tokens = int(rest * GIB) // inputs.kv_bytes_per_token
    kv_tokens = kv_tokens // options.page_size * options.page_size
    if kv_tokens <= 0:
        raise UserError(
            "sizing.max_states", f"{slots} states leave no memory for KV; allowed: fewer"
        )
    max_running, limited_by = _max_running(inputs, slots, kv_tokens, per_request)
    return Sizing(slots, kv_tokens, scratch, per_request, max_running, limited_by)


def _state_slots(options: SGLangOptions, inputs: SizingInputs, per_request: int) -> int:
    if inputs.max_states is not None:
        return inputs.max_states
    if not options.radix and inputs.max_running is not None:
        return max(1, inputs.max_running)
    budget = inputs.memory_bytes / GIB * inputs.ratio / (1 + inputs.ratio) * GIB
    state, drafts = inputs.state_bytes, inputs.num_draft_tokens
    if not inputs.reserves_scratch:
        return int((budget - state) // state)
    return int((budget - state * (1 + drafts)) // (state * (1 + drafts / per_request)))


def _scratch_bytes(
    options: SGLangOptions, inputs: SizingInputs, slots: int, per_request: int
) -> int:
    """States for drafted tokens, one set a running request and one to pad with."""
    if not inputs.reserves_scratch:
        return 0
    assert inputs.max_running is not None
    requests = min(max(1, inputs.max_running), slots // per_request)
    if not options.radix and inputs.max_states is None:
        requests = slots
    return inputs.state_bytes * (requests + 1) * inputs.num_draft_tokens


def _max_running(
    inputs: SizingInputs, slots: int, kv_tokens: int, per_request: int
) -> tuple[int, str]:
    estimate = min(int(kv_tokens / inputs.context_tokens * 512), MOST_ESTIMATED)
    asked = inputs.max_running or max(estimate, FEWEST_ESTIMATED)
    caps = [
        (asked, "requests asked for" if inputs.max_running else "the engine's estimate"),
        (kv_tokens // 2, "KV tokens"),
        (slots // per_request, "state slots"),
    ]
    running, limited_by = min(caps, key=lambda cap: cap[0])
    if running <= 0:
        raise UserError(
            "sizing.max_states", f"{slots} slots; allowed: at least {per_request} for one request"
        )
    return running, limited_by


def describe(options: SGLangOptions, inputs: SizingInputs) -> list[tuple[str, str]]:
    """What a user asks before start, as rows of a table."""
    sizing = size_pools(options, inputs)
    grid = options.grid_tokens
    shortest = f"{grid} tokens, in a prompt of {grid + 1}" if options.extra_buffer else _NO_GRID
    even = sizing.kv_tokens // sizing.state_slots
    return [
        ("strategy", str(options.strategy) if options.radix else "radix cache off"),
        ("checkpoint grid", f"{grid} tokens (state chunk {options.state_chunk_tokens})"),
        ("decode checkpoint every", f"{options.decode_grid_tokens} tokens"),
        ("shortest reusable prefix", shortest),
        ("state slots", f"{sizing.state_slots} of {format_bytes(inputs.state_bytes)}"),
        ("KV tokens", str(sizing.kv_tokens)),
        ("draft scratch", format_bytes(sizing.scratch_bytes)),
        ("slots per request", str(sizing.slots_per_request)),
        ("running requests", f"{sizing.max_running}, limited by {sizing.limited_by}"),
        ("short first", f"states where one is kept every {even} tokens or less, else KV"),
    ]


_NO_GRID = "a whole earlier sequence, one token more than it"
