"""What a checkpoint policy is asked, and what it is shown of a request."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.request import Request


@dataclass(frozen=True, slots=True)
class PromptView:
    """One request at admission, as a checkpoint policy sees it.

    `grid_tokens`: states can be kept at multiples of this only (page size and trace granularity).
    `num_final_tokens`: tokens whose state exists at the end: the last generated token is never
    fed back, so it is prompt + output - 1.
    `leaves_inside`: the prompt leaves the tree at `num_match_tokens`, where no state is kept.
    """

    request: Request
    num_hit_tokens: int
    num_match_tokens: int
    num_final_tokens: int
    grid_tokens: int

    @property
    def leaves_inside(self) -> bool:
        return self.num_match_tokens > self.num_hit_tokens


class CheckpointPolicy(ABC):
    """Says at which token positions of a request a recurrent state is to be kept.

    Asked once a request, at admission. Positions may come in any order and off the grid: the
    cache floors them to it and leaves out those that are not behind the hit or past the end.
    `saves_states`: False where the policy never asks for one.
    `source`: where the rule was published; `deviation`: where this differs from it.
    """

    saves_states: ClassVar[bool] = True
    source: ClassVar[str]
    deviation: ClassVar[str] = ""

    @abstractmethod
    def positions(self, view: PromptView) -> Iterable[int]:
        """Token positions at which states of this request are to be kept."""

    def positions_on_grid(self, view: PromptView, num_known_tokens: int) -> list[int]:
        """The positions as a cache can keep them: rising, on the grid, behind the hit.

        num_known_tokens: states lie within tokens of known content, where they can be found again.
        """
        grid = view.grid_tokens
        wanted = {min(p, num_known_tokens) // grid * grid for p in self.positions(view)}
        return sorted(p for p in wanted if p > view.num_hit_tokens)

    def stride_tokens(self, grid_tokens: int) -> int | None:
        """Distance of states on that grid if every request has them at all of its multiples.

        None where positions depend on more than the grid; then `positions` has to be asked.
        """
        return None
