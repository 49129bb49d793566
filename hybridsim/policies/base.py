"""What a policy is asked. Policies know requests and positions; they never see bytes or pools."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridsim.request import Request

FloatArray = NDArray[np.float64]


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
    release. `kv_note` and `state_note` belong to the policy; a node split in two keeps both copies
    of the first, so notes must be immutable. `last_user`: the request that touched the KV last.
    """

    created: int
    kv_access: int
    num_touches: int
    kv_note: Any
    state_created: int
    state_access: int
    num_state_touches: int
    state_note: Any
    last_user: Request | None

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def state_gap_tokens(self) -> int:
        """Tokens to recompute from the nearest kept state above, were the one here gone."""
        ...


Priority = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy may know beforehand.

    `requests`: the trace in arrival order; only clairvoyant policies may look at it.
    `prefill_flops(n, p)`: floating-point operations to prefill n tokens after p earlier ones.
    `rng`: the run's source of randomness.
    """

    requests: Sequence[Request]
    kv_bytes_per_token: int
    state_bytes: int
    prefill_flops: Callable[[int, int], float]
    rng: np.random.Generator


class EvictionPolicy:
    """Says what goes first: the lowest priority does. Only leaves' KV is ever a candidate.

    Law: while an object lives, its priority never falls, unless `may_fall` says so. The victim
    queue relies on it. In a shared pool KV and states compete, so both priorities must compare.
    The hooks are called before the priority is asked for again.
    """

    may_fall: ClassVar[bool] = False

    @property
    def refreshes_path(self) -> bool:
        """A use touches every state on the matched path; else only the one that was copied."""
        return True

    def prepare(self, setting: Setting) -> None:
        """Called once, before the first request."""

    def on_request(self, request: Request) -> None:
        """A request is being admitted."""

    def on_kv_use(self, item: Resident, now: int) -> None:
        """The item's KV is inserted or reused. May write `item.kv_note`."""

    def on_state_use(self, item: Resident, now: int) -> None:
        """The item's state is saved or refreshed. May write `item.state_note`."""

    def on_eviction(self, priority: Priority) -> None:
        """An object of this priority was chosen to go."""


class RankingPolicy(EvictionPolicy, ABC):
    """Priorities that change only when their object is used."""

    @abstractmethod
    def kv_priority(self, item: Resident) -> Priority:
        """Of the KV at the end of a leaf."""

    @abstractmethod
    def state_priority(self, item: Resident) -> Priority:
        """Of the state at the item's end."""


class ScanningPolicy(EvictionPolicy, ABC):
    """Scores that depend on time or on each other: all candidates are scored anew for every victim.

    O(candidates) per victim.
    """

    @abstractmethod
    def scores(
        self, kv_items: Sequence[Resident], state_items: Sequence[Resident], now: int
    ) -> tuple[FloatArray, FloatArray]:
        """Scores of the KV candidates and of the state candidates; the lowest goes first."""
