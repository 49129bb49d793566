"""A GPU of infinite speed: every step takes no time.

Timed mode with serial arrivals then decides as replay does, for eviction policies that rank by
use. Those that score candidates against each other may choose others, because replay takes memory
for an output at once and timed mode page by page.
"""

from collections.abc import Sequence

from hybridsim.cost.base import PrefillChunk


class InfiniteCost:
    """Zero seconds for everything."""

    def step_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> float:
        return 0.0

    def decode_steps_s(self, num_steps: int, num_decodes: int, decode_context_tokens: int) -> float:
        return 0.0

    def notes(self) -> list[str]:
        return ["steps take no time: the GPU is infinitely fast"]
