"""vLLM's retention interval."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.policies.make import at_least


@dataclass(frozen=True, slots=True)
class Retention(CheckpointPolicy):
    """The replay boundary (last grid position before the last prompt token), the junction (where
    the prompt leaves the tree), and with `tokens` > 0 each multiple of `tokens`.
    """

    source: ClassVar[str] = "vLLM 0.33.0 (#45845, #47782, #52216: default 0)"
    deviation: ClassVar[str] = (
        "On the research cache's grid. Interval None, which keeps every block, is `all_blocks`."
    )

    tokens: int = 0

    def __post_init__(self) -> None:
        at_least("cache.checkpoint.tokens", self.tokens, 0)

    def positions(self, view: PromptView) -> Iterable[int]:
        yield view.request.num_prompt_tokens - 1
        if view.leaves_inside:
            yield view.num_match_tokens
        if self.tokens:
            first = view.num_hit_tokens // self.tokens + 1
            yield from range(first * self.tokens, view.num_final_tokens + 1, self.tokens)
