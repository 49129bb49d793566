"""One request inside the engine: its counters and what happened to it. It owns no block."""

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from hybridsim.engines.vllm.block_pool import Eviction


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's progress.

    keys: content name of every `unit` tokens of prompt and output (see `names`), of which those
    with `lookahead_tokens` more tokens present exist by now.
    num_tokens: prompt and generated tokens so far; num_computed_tokens: those with KV;
    num_lost_tokens: those that had it at a preemption, at the most.
    junction: where a sibling's attention blocks end although its state does not reach there; 0 if
    nowhere. From `chunks` on, the fields only report: (start, length) of every prefill chunk,
    blocks allocated, evictions caused, checkpoint positions saved, what the first lookup found,
    `index` of the request that had saved the state it hit (-1: none).
    """

    index: int
    request_id: str
    num_prompt_tokens: int
    num_output_tokens: int
    keys: SequenceOf[int]
    unit: int
    lookahead_tokens: int = 0
    priority: int = 0
    num_tokens: int = 0
    num_computed_tokens: int = 0
    num_lost_tokens: int = 0
    num_draft_tokens: int = 0
    junction: int = 0
    is_prefilling: bool = False
    is_finished: bool = False
    is_running: bool = False
    num_preemptions: int = 0
    chunks: list[tuple[int, int]] = field(default_factory=list)
    num_allocated_blocks: int = 0
    num_refusals: int = 0
    evictions: list[Eviction] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    num_match_tokens: int = 0
    num_dropped_tokens: int = 0
    hit_owner: int = -1
    held: list[int] = field(default_factory=list)
    finished_step: int = -1

    def __post_init__(self) -> None:
        self.num_tokens = self.num_tokens or self.num_prompt_tokens

    def compute(self, num_tokens: int) -> None:
        """A step computes that many more tokens."""
        start = self.num_computed_tokens
        self.num_computed_tokens += num_tokens
        self.is_prefilling = self.num_computed_tokens < self.num_tokens
        if start < self.num_prompt_tokens or self.num_preemptions:
            self.chunks.append((start, num_tokens))

    def lose_all(self) -> None:
        """Preempted: nothing of what was computed is held any more."""
        self.is_running = False
        self.num_lost_tokens = max(self.num_lost_tokens, self.num_computed_tokens)
        self.num_computed_tokens = self.num_draft_tokens = 0
        self.num_preemptions += 1

    @property
    def num_generated_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_hashed_tokens(self) -> int:
        """Tokens covered by the hashes that exist now, a multiple of the unit."""
        return max(self.num_tokens - self.lookahead_tokens, 0) // self.unit * self.unit

    @property
    def prefill_end(self) -> int:
        """Where prefill ends; a resumed request replays its outputs but the last."""
        return max(self.num_prompt_tokens, self.num_tokens - 1)

    @property
    def num_hit_tokens(self) -> int:
        """Tokens reused at first admission (0 when it never ran)."""
        return self.chunks[0][0] if self.chunks else 0

    def key_at(self, num_tokens: int) -> int:
        """Content name of the prefix of `num_tokens` tokens, a multiple of the unit."""
        return self.keys[num_tokens // self.unit - 1]
