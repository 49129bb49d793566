"""The seam between a step and its price: chunks in, seconds out. Cost models see no cache."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """`num_new_tokens` prompt tokens computed in a step after `num_prefix_tokens` earlier ones."""

    num_new_tokens: int
    num_prefix_tokens: int


class CostModel(Protocol):
    """Seconds of engine steps on one GPU (or one tensor-parallel rank)."""

    def step_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> float:
        """One step: the chunks, plus one new token for each of `num_decodes` requests.

        decode_context_tokens: tokens already in context, summed over those requests.
        copied_bytes: state bytes copied from slot to slot in this step.
        """
        ...

    def decode_steps_s(self, num_steps: int, num_decodes: int, decode_context_tokens: int) -> float:
        """`num_steps` pure decode steps in a row, each context growing by one token a step.

        Equal to the sum of `step_s((), num_decodes, decode_context_tokens + i * num_decodes)` for
        i in 0..num_steps-1 up to float rounding, at a cost that does not depend on `num_steps`.
        """
        ...

    def notes(self) -> list[str]:
        """Sentences for a run's record: where the times come from, and how far to trust them."""
        ...
