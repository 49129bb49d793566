"""What rules for eviction and thinning are asked. They know requests and positions, never pools."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridsim.policies.checkpoint.base import PromptView
from hybridsim.request import Request

FloatArray = NDArray[np.float64]


class Resident(Protocol):
    """What a policy may look at: KV tokens `[start, end)` and perhaps a state kept at `end`.

    Times are ticks of the cache's logical clock, which rises with every acquire, commit and
    release. `kv_note` and `state_note` belong to the eviction policy; a node split in two keeps
    both copies of the first, so notes must be immutable. `last_user`: the request that touched the
    KV last; its content up to `end` is the item's.
    """

    created: int
    kv_access: int
    num_touches: int
    kv_note: Any
    state_created: int
    state_access: int
    num_state_touches: int
    state_note: Any
    state_locks: int
    state_source: str
    last_user: Request | None

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def num_children(self) -> int: ...

    @property
    def has_state(self) -> bool: ...

    @property
    def state_gap_tokens(self) -> int:
        """Tokens to recompute from the nearest kept state above, were the one here gone."""
        ...

    def path(self) -> "Iterator[Resident]":
        """This item and those above it, deepest first."""
        ...


class Thinning(ABC):
    """Keeps the states along one path few: which of them go when one more has been saved."""

    source: ClassVar[str]
    deviation: ClassVar[str] = ""

    def planned(self, view: PromptView, positions: Sequence[int]) -> Sequence[int]:
        """Those of the rising checkpoint positions that are worth saving at all."""
        return positions

    @abstractmethod
    def dropped(self, states: Sequence[Resident]) -> Iterable[Resident]:
        """Which states to drop, of all on the path of the one just saved, which is the last.

        `states`: shallow first. Those with `state_locks` are being copied and must stay.
        """


Priority = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy may know beforehand.

    `requests`: the trace in arrival order; only clairvoyant policies may look at it.
    `prefill_flops(n, p)`: floating-point operations to prefill n tokens after p earlier ones.
    `rng`: the run's source of randomness. `shared`: KV and states live in one pool of bytes.
    """

    requests: Sequence[Request]
    kv_bytes_per_token: int
    state_bytes: int
    prefill_flops: Callable[[int, int], float]
    rng: np.random.Generator
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Evicted:
    """What has just gone: KV tokens `[start, end)` of `item`, or the state at `start == end`."""

    priority: Priority
    item: Resident
    is_kv: bool
    start: int
    end: int


LAYOUTS = ("split", "shared")


class EvictionPolicy:
    """Says what goes first: the lowest priority does. Only leaves' KV is ever a candidate.

    Law: while an object lives, its priority never falls, unless `may_fall` says so. The victim
    queue relies on it. In a shared pool KV and states compete, so both priorities must compare.
    The hooks are called before the priority is asked for again. A request uses each KV item on
    its path once, and each state that it saves or refreshes once.
    `weighs_gaps`: priorities depend on `state_gap_tokens` of the moment, so the cache keeps track.
    `layouts`: where the rule means something, `refusal`: why it does not elsewhere.
    `source`: where it was published; `deviation`: where this differs.
    """

    may_fall: ClassVar[bool] = False
    weighs_gaps: ClassVar[bool] = False
    layouts: ClassVar[tuple[str, ...]] = LAYOUTS
    refusal: ClassVar[str] = ""
    needs_setting: ClassVar[bool] = False
    source: ClassVar[str]
    deviation: ClassVar[str] = ""

    @property
    def refreshes_path(self) -> bool:
        """A use touches every state on the matched path; else only the one that was copied."""
        return True

    def prepare(self, setting: Setting) -> None:
        """Called once, before the first request. UserError if the trace does not suit."""

    def on_request(self, request: Request, num_hit_tokens: int) -> None:
        """A request is being admitted; its first `num_hit_tokens` need not be computed."""

    def on_kv_use(self, item: Resident, now: int) -> None:
        """The item's KV is inserted or reused. May write `item.kv_note`."""

    def on_state_use(self, item: Resident, now: int) -> None:
        """The item's state is saved or refreshed. May write `item.state_note`."""

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        """An object went because this policy ranked it lowest."""

    def on_split(self, head: Resident, tail: Resident) -> None:
        """A node was cut in two; `head`, new and without a state, has a copy of the KV's note."""

    def kv_floor(self, item: Resident) -> int:
        """Token position (below the leaf's end) down to which its KV may go as one victim."""
        return item.start


class RankingPolicy(EvictionPolicy, ABC):
    """Priorities that change only when their object is used (or is reported by `fallen`)."""

    @abstractmethod
    def kv_priority(self, item: Resident) -> Priority:
        """Of the KV at the end of a leaf."""

    @abstractmethod
    def state_priority(self, item: Resident) -> Priority:
        """Of the state at the item's end."""

    def fallen(self) -> Iterable[tuple[Resident, bool]]:
        """Objects (item, is it its KV) whose priority fell without a use since last asked."""
        return ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may go: object i is `items[i]` and has `values[:, i]`, as its policy gave them.

    values: [num_values, len(items)].
    """

    items: Sequence[Resident]
    values: FloatArray

    def __len__(self) -> int:
        return len(self.items)


class ScanningPolicy(EvictionPolicy, ABC):
    """Scores that depend on time or on each other: all candidates are scored anew for every victim.

    What a score needs to know of an object is asked for as `num_values` numbers, and again only
    after the object was used, cut or, with `weighs_gaps`, got another gap. A victim then costs
    O(candidates) in numpy.
    """

    num_values: ClassVar[int]

    @abstractmethod
    def kv_values(self, item: Resident) -> tuple[float, ...]:
        """Of the KV of a leaf. Changes nothing that can be seen."""

    @abstractmethod
    def state_values(self, item: Resident) -> tuple[float, ...]:
        """Of the state at the item's end. Changes nothing that can be seen."""

    @abstractmethod
    def scores(self, kv: Candidates, states: Candidates, now: int) -> tuple[FloatArray, FloatArray]:
        """Scores of the KV candidates and of the state candidates; the lowest goes first.

        A policy that changes what an object's values are made of writes the new ones there too.
        """
