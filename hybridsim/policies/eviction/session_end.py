"""The session-end oracle."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar

from hybridsim.errors import UserError
from hybridsim.policies.base import Priority, RankingPolicy, Resident, Setting
from hybridsim.request import Request


@dataclass
class SessionEnd(RankingPolicy):
    """Evict first, by LRU, what only ended sessions have used; then plain LRU.

    An oracle: it knows each session's last request, and nothing else of the future.
    """

    may_fall: ClassVar[bool] = True
    needs_setting: ClassVar[bool] = True
    source: ClassVar[str] = (
        "reference point between lru and belady: how much is it worth to know when a session ends?"
    )
    deviation: ClassVar[str] = "A trace without session ids is refused."

    _index_of: dict[Request, int] = field(default_factory=dict, init=False, repr=False)
    _last_of: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _ending: dict[int, list[Resident]] = field(
        default_factory=lambda: defaultdict(list), init=False, repr=False
    )
    _ended: list[tuple[Resident, bool]] = field(default_factory=list, init=False, repr=False)
    _now_index: int = field(default=-1, init=False)

    def prepare(self, setting: Setting) -> None:
        for index, request in enumerate(setting.requests):
            if request.session_id is None:
                raise UserError(
                    "cache.eviction",
                    f"session_end needs session ids, but request {request.request_id} has none; "
                    "allowed: another policy, or a trace format with sessions",
                )
            self._index_of[request] = index
            self._last_of[request.session_id] = index

    def on_request(self, request: Request, num_hit_tokens: int) -> None:
        index = max(self._index_of[request], self._now_index)
        for ended in range(self._now_index + 1, index + 1):
            for item in self._ending.pop(ended, ()):
                if item.kv_note == ended:
                    self._ended += [(item, True), (item, False)]
        self._now_index = index

    def on_kv_use(self, item: Resident, now: int) -> None:
        assert item.last_user is not None
        last = self._last_of[item.last_user.session_id or ""]
        if item.kv_note is None or last > item.kv_note:
            item.kv_note = last
        self._watch(item)

    def on_split(self, head: Resident, tail: Resident) -> None:
        self._watch(head)

    def _watch(self, item: Resident) -> None:
        if item.kv_note > self._now_index:
            self._ending[item.kv_note].append(item)

    def kv_priority(self, item: Resident) -> Priority:
        return (item.kv_note > self._now_index, item.kv_access, -item.end, 1)

    def state_priority(self, item: Resident) -> Priority:
        return (item.kv_note > self._now_index, item.state_access, -item.end, 0)

    def fallen(self) -> list[tuple[Resident, bool]]:
        ended, self._ended = self._ended, []
        return ended
