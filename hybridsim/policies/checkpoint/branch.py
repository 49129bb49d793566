"""Save where prompts part, on the second touch."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView


@dataclass(frozen=True, slots=True)
class Branch(CheckpointPolicy):
    """A state at the point where the prompt leaves the resident tree, if none is there yet.

    The first request to bring a prefix cannot know that it will be shared; the second shows it and
    pays for it; the third hits.
    """

    source: ClassVar[str] = (
        "Marconi's split point (arXiv 2411.19379), vLLM's junction (#37898), SGLang's branching "
        "position (0.5.23)"
    )
    deviation: ClassVar[str] = "Floored to the research cache's grid, not to the engine's."

    def positions(self, view: PromptView) -> Iterable[int]:
        return (view.num_match_tokens,) if view.leaves_inside else ()
