"""Belady's rule: the farthest next use goes first."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from hybridsim.policies.base import Evicted, Priority, RankingPolicy, Resident, Setting
from hybridsim.request import Request
from hybridsim.trie import Trie, build_trie

NEVER = float("inf")


class NextUse:
    """When the trace comes back to a prefix: the static trie, and who passes each node of it."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._trie: Trie = build_trie(requests, outputs=True)
        self._passes: list[list[int]] = [[] for _ in range(self._trie.num_nodes)]
        for index, terminal in enumerate(self._trie.terminal.tolist()):
            for node in self._trie.path(terminal).tolist():
                self._passes[node].append(index)
        self._path = lru_cache(maxsize=4096)(self._path_of)

    def after(self, index: int, now_index: int, num_tokens: int) -> float:
        """First request after `now_index` whose prompt begins with these tokens of `index`."""
        ends, nodes = self._path(index)
        passes = self._passes[nodes[bisect_left(ends, num_tokens)]]
        place = bisect_right(passes, now_index)
        return passes[place] if place < len(passes) else NEVER

    def floor(self, index: int, num_tokens: int) -> int:
        """Position above which the tokens up to `num_tokens` are passed by the same requests."""
        ends, _ = self._path(index)
        row = bisect_left(ends, num_tokens)
        return ends[row - 1] if row else 0

    def _path_of(self, index: int) -> tuple[list[int], list[int]]:
        """Token ends and nodes on the path of a request's prompt and known output."""
        nodes = self._trie.path(int(self._trie.full_terminal[index]))
        return self._trie.end_tokens[nodes].tolist(), nodes.tolist()


@dataclass
class Belady(RankingPolicy):
    """Evict what the trace comes back to last; of one next use states first, the shallow before
    the deep, then KV, the deep before the shallow.

    An oracle: it knows the whole trace. With states free it is optimal, but for last tokens of
    prompts, which are computed again whether they are kept or not; with states it is a heuristic,
    since a state and the KV above it are worth nothing without each other.
    """

    may_fall: ClassVar[bool] = True  # when the next use has come, the one after it is farther away
    needs_setting: ClassVar[bool] = True
    source: ClassVar[str] = "Belady 1966"
    deviation: ClassVar[str] = (
        "Next use is the next request to pass the position, whether it will resume there or not."
    )

    _next_use: NextUse | None = field(default=None, init=False, repr=False)
    _index_of: dict[Request, int] = field(default_factory=dict, init=False, repr=False)
    _now_index: int = field(default=-1, init=False)
    # request -> items whose next use it is: most are touched then, but a state need not be
    _due: dict[float, dict[Resident, None]] = field(
        default_factory=lambda: defaultdict(dict), init=False, repr=False
    )
    _fallen: dict[Resident, None] = field(default_factory=dict, init=False, repr=False)

    def prepare(self, setting: Setting) -> None:
        self._next_use = NextUse(setting.requests)
        self._index_of = {request: index for index, request in enumerate(setting.requests)}

    def on_request(self, request: Request, num_hit_tokens: int) -> None:
        index = max(self._now_index, self._index_of[request])
        for passed in range(self._now_index + 1, index + 1):
            self._fallen |= self._due.pop(passed, {})
        self._now_index = index

    def on_kv_use(self, item: Resident, now: int) -> None:
        self._watch(item)

    def on_split(self, head: Resident, tail: Resident) -> None:
        self._watch(head)

    def on_eviction(self, evicted: Evicted, now: int) -> None:
        if evicted.is_kv:
            self._watch(evicted.item)  # what is left of a leaf is passed by more requests

    def _watch(self, item: Resident) -> None:
        next_use = self._next(item)
        if next_use < NEVER:
            self._due[next_use][item] = None

    def fallen(self) -> list[tuple[Resident, bool]]:
        fallen, self._fallen = self._fallen, {}
        for item in fallen:
            self._watch(item)
        return [(item, is_kv) for item in fallen for is_kv in (True, False)]

    def kv_priority(self, item: Resident) -> Priority:
        return (-self._next(item), 1, -item.end)

    def state_priority(self, item: Resident) -> Priority:
        return (-self._next(item), 0, item.end)

    def kv_floor(self, item: Resident) -> int:
        assert self._next_use is not None
        return max(item.start, self._next_use.floor(self._index(item), item.end))

    def _next(self, item: Resident) -> float:
        assert self._next_use is not None, "prepare was not called"
        return self._next_use.after(self._index(item), self._now_index, item.end)

    def _index(self, item: Resident) -> int:
        assert item.last_user is not None
        return self._index_of[item.last_user]
