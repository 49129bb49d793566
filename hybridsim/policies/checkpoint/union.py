"""Several checkpoint policies at once, written `prompt_end+branch`."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView


@dataclass(frozen=True, slots=True)
class Union(CheckpointPolicy):
    """Every position that any of the parts wants."""

    source: ClassVar[str] = "composition"

    parts: tuple[CheckpointPolicy, ...]

    def positions(self, view: PromptView) -> Iterable[int]:
        for part in self.parts:
            yield from part.positions(view)
