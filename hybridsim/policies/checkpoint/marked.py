"""Where the application says so."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.errors import UserError
from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.request import Request


@dataclass(frozen=True, slots=True)
class Marked(CheckpointPolicy):
    """A state at each position that the trace marks (`Request.marks`)."""

    source: ClassVar[str] = "vLLM RFC #55697 (marks); SGLang #37198 (one fixed position)"
    deviation: ClassVar[str] = "Marks are token positions in the trace, not special tokens."

    def positions(self, view: PromptView) -> Iterable[int]:
        return view.request.marks


def check_marks(policy: str, requests: Iterable[Request]) -> None:
    """UserError where a policy (`name` or `name+name`) lives on marks and no request has any."""
    if "marked" in policy.split("+") and not any(request.marks for request in requests):
        raise UserError(
            "cache.checkpoint",
            "'marked' needs marks, but the trace has none; allowed: another policy, or marks by "
            "rule, such as trace.marks: [shared, prompt_end]",
        )
