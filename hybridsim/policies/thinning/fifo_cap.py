"""llama.cpp's list of context checkpoints."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import Resident, Thinning
from hybridsim.policies.checkpoint.base import PromptView
from hybridsim.policies.make import at_least


@dataclass(frozen=True)
class FifoCap(Thinning):
    """At most `max_states` along a path: the one saved first goes first. A state less than
    `min_spacing_tokens` behind the one before it is not saved, unless it is the request's last.
    """

    source: ClassVar[str] = "llama.cpp (`--ctx-checkpoints`, `--checkpoint-min-step`)"
    deviation: ClassVar[str] = (
        "A list belongs to a path of the tree, not to a server slot; a state shared by two paths "
        "counts in both."
    )

    max_states: int = 32
    min_spacing_tokens: int = 8192

    def __post_init__(self) -> None:
        at_least("cache.thinning.max_states", self.max_states, 1)
        at_least("cache.thinning.min_spacing_tokens", self.min_spacing_tokens, 0)

    def planned(self, view: PromptView, positions: Sequence[int]) -> Sequence[int]:
        kept: list[int] = []
        before = view.num_hit_tokens
        for position in positions:
            if position - before >= self.min_spacing_tokens or position == positions[-1]:
                kept.append(position)
                before = position
        return kept

    def dropped(self, states: Sequence[Resident]) -> Iterable[Resident]:
        spare = [x for x in states[:-1] if not x.state_locks]
        spare.sort(key=lambda x: (x.state_created, x.end))
        return spare[: max(len(states) - self.max_states, 0)]
