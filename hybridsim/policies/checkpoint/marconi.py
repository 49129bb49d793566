"""Marconi's admission."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.policies.checkpoint.branch import Branch
from hybridsim.policies.checkpoint.fixed import TurnEnd

_PARTS = (TurnEnd(), Branch())


@dataclass(frozen=True, slots=True)
class MarconiAdmission(CheckpointPolicy):
    """At most two states a request: after the last token, and where the prompt leaves the tree."""

    source: ClassVar[str] = "Marconi (MLSys'25, arXiv 2411.19379)"
    deviation: ClassVar[str] = (
        "As `turn_end+branch`: less the last generated token; a place where a state was evicted "
        "gets one again, and where an output leaves the tree gets none."
    )

    def positions(self, view: PromptView) -> Iterable[int]:
        for part in _PARTS:
            yield from part.positions(view)
