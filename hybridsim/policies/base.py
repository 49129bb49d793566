"""What a policy is asked. Policies know requests and positions; they never see bytes or pools."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

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


class CheckpointPolicy(Protocol):
    """Says at which token positions of a request a recurrent state is to be kept.

    Asked once a request, at admission. Positions may come in any order and off the grid: the
    cache floors them to it and leaves out those that are not behind the hit or past the end.
    """

    def positions(self, view: PromptView) -> Iterable[int]: ...


class Resident(Protocol):
    """What an eviction policy may look at: KV tokens `[start, end)` and a state kept at `end`.

    Times are ticks of the cache's logical clock, which rises with every acquire, commit and
    release.
    """

    created: int
    kv_access: int
    num_touches: int
    state_created: int
    state_access: int
    num_state_touches: int

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


Priority = tuple[float, ...]


class EvictionPolicy(Protocol):
    """Says what goes first: the lowest priority does. Only leaves' KV is ever a candidate.

    Law: while an object lives, its priority never falls. The victim queue relies on it.
    In a shared pool KV and states compete, so both methods must return comparable tuples.
    `refreshes_path`: a use touches every state on the matched path (else only the consumed one).
    """

    @property
    def refreshes_path(self) -> bool: ...

    def kv_priority(self, item: Resident) -> Priority: ...

    def state_priority(self, item: Resident) -> Priority: ...
