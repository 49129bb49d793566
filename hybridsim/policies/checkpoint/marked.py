"""Where the application says so."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.base import PromptView


@dataclass(frozen=True, slots=True)
class Marked:
    """A state at each position that the trace marks (`Request.marks`)."""

    source: ClassVar[str] = "vLLM RFC #55697 (marks); SGLang #37198 (one fixed position)"
    deviation: ClassVar[str] = "Marks are token positions in the trace, not special tokens."

    def positions(self, view: PromptView) -> Iterable[int]:
        return view.request.marks
