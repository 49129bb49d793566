"""The research cache under LRU, replayed over runs of a trie instead of a tree of its own.

Since every request touches its whole path, what is resident is known by three things: for each
request the stretch of its path that it was the last to touch, how far eviction has eaten into that
stretch from below, and which states are kept. So a request costs O(runs on its path), not O(nodes),
and nothing is ever compared or split. The rules are those of `hybridsim.cache.radix_cache` with
`lru` (whole path refreshed) and one request at a time; a test holds both equal hit by hit.
"""

from bisect import bisect_right
from collections.abc import Sequence

from hybridsim.analysis.visit import Pools, Running, Visit


class Frontier:
    """One cache. Requests must come in the order in which the runs were computed."""

    def __init__(self, pools: Pools, num_requests: int) -> None:
        self.pools = pools
        self.used_pages = 0
        self.used_states = 0
        self._top = [0] * num_requests  # pages above the stretch that a request still owns
        self._bottom = [0] * num_requests  # pages down to which that stretch is resident
        self._states: list[list[int]] = [[] for _ in range(num_requests)]  # rising positions
        self._oldest_kv = 0
        self._oldest_state = 0
        self._current = 0
        self._now = 0
        # The running request's own states may go as well, once nothing older is left.
        self._mine: dict[int, int] = {}  # position -> tick of its last touch
        self._locked: int | None = None

    def lookup(self, visit: Visit) -> tuple[int, int]:
        """Match and hit in pages; changes nothing."""
        walk = 0
        for owner, cut in visit.runs:
            if self._bottom[owner] > self._top[owner]:
                walk = min(cut, self._bottom[owner])
            if walk < cut:
                break
        match = min(walk, visit.prompt_known, visit.limit)
        if not self.pools.is_hybrid:
            return match, match
        hit = 0
        for owner, cut in visit.runs:
            states = self._states[owner]
            index = bisect_right(states, min(cut, match))
            hit = states[index - 1] if index else hit
            if cut >= match:
                break
        return match, hit

    def serve(
        self, request: int, visit: Visit, match: int, hit: int, positions: Sequence[int]
    ) -> None:
        """Run a request that fits, from its lookup to its end. O(runs + positions + evictions).

        positions: tokens at which states are wanted, rising and behind the hit.
        """
        self._current, self._now, self._mine = request, 0, {}
        running = Running(visit, match, visit.prompt - match)
        self._touch(visit, match)
        self._admit(running, hit)
        wanted = set(positions)
        for tokens in positions:
            if tokens < visit.prompt_tokens:
                self._commit(running, tokens, wanted)
        self._commit(running, visit.prompt_tokens, wanted)
        for tokens in positions:
            if visit.prompt_tokens < tokens < visit.final_tokens:
                self._grow(running, tokens)
                self._commit(running, tokens, wanted)
        if visit.final_tokens > visit.prompt_tokens:
            self._grow(running, visit.final_tokens)
            if visit.final_tokens in wanted:
                self._commit(running, visit.final_tokens, wanted)
        self._release(request, running)

    # -- the request's steps

    def _admit(self, running: Running, hit: int) -> None:
        is_hybrid = self.pools.is_hybrid
        takes_over = bool(hit) and not self.pools.holds(running.visit.prompt, 2) and is_hybrid
        self._locked = hit or None
        self._make_room(running.private, int(is_hybrid and not takes_over))
        self.used_pages += running.private
        running.has_slot = is_hybrid
        if takes_over:
            del self._mine[hit]
        else:
            self.used_states += int(is_hybrid)

    def _commit(self, running: Running, tokens: int, wanted: set[int]) -> None:
        self._locked = None
        self._now += 1
        page_tokens = self.pools.page_tokens
        self._insert(running, min(tokens // page_tokens, running.visit.known))
        if tokens in wanted:
            self._save(running, tokens // page_tokens, tokens == running.visit.final_tokens)

    def _insert(self, running: Running, end: int) -> None:
        """Move own pages into the tree; give back those that are there already."""
        if end <= running.committed:
            return
        at = running.committed
        for owner, cut in running.visit.runs:
            if cut <= at:
                continue
            reach = min(cut, self._bottom[owner], end)
            if reach <= at:
                break
            self._top[owner] = at = reach
            if reach < cut:
                break
        self.used_pages -= at - running.committed
        running.private -= end - running.committed
        running.committed = end

    def _save(self, running: Running, position: int, is_last: bool) -> None:
        """Keep a state; the running one itself at the request's very end."""
        if position in self._mine or self._reclaim(running.visit, position):
            self._mine[position] = self._now
            return
        if is_last and running.has_slot:
            running.has_slot = False
        else:
            own = running.committed + running.private
            if not self.pools.holds(own, int(running.has_slot) + 1):
                return
            self._make_room(0, 1)
            self.used_states += 1
        self._mine[position] = self._now

    def _reclaim(self, visit: Visit, position: int) -> bool:
        """Take a state that an earlier request left behind this one's match."""
        for owner, cut in visit.runs:
            if position <= cut:
                if position in self._states[owner]:
                    self._states[owner].remove(position)
                    return True
                return False
        return False

    def _grow(self, running: Running, tokens: int) -> None:
        extra = -(-tokens // self.pools.page_tokens) - running.committed - running.private
        if extra > 0:
            self._make_room(extra, 0)
            self.used_pages += extra
            running.private += extra

    def _release(self, request: int, running: Running) -> None:
        self._locked = None
        self._now += 1
        self._insert(running, running.visit.known)
        self.used_states -= int(running.has_slot)
        self.used_pages -= running.private
        self._touch(running.visit, running.committed)
        self._bottom[request] = running.committed
        self._states[request] = sorted(self._mine)

    def _touch(self, visit: Visit, end: int) -> None:
        """Make the path down to `end` the running request's own, with its states."""
        above = 0
        for owner, cut in visit.runs:
            if above >= end:
                return
            reach = min(cut, end)
            self._top[owner] = max(self._top[owner], reach)
            states = self._states[owner]
            count = bisect_right(states, reach)
            self._mine.update(dict.fromkeys(states[:count], self._now))
            del states[:count]
            above = cut

    # -- room

    def _make_room(self, num_pages: int, num_states: int) -> None:
        """Evict in the order of LRU until so much is free; the caller knows that it can be had."""
        pools = self.pools
        while True:
            lack_states = 0
            if pools.slots is not None:
                lack_states = self.used_states + num_states - pools.slots
            lack = (
                (self.used_pages + num_pages) * pools.page
                + (self.used_states + num_states) * pools.state
                - pools.capacity
            )
            if lack <= 0 and lack_states <= 0:
                return
            is_shared = pools.slots is None
            kv = self._kv_victim() if lack > 0 and pools.page else None
            state = self._state_victim() if lack_states > 0 or (is_shared and lack > 0) else None
            if kv is not None and (state is None or kv < state):
                self._evict_kv(kv[0], lack)
            elif state is not None:
                self._states[state[0]].pop()
                self.used_states -= 1
            else:
                self._drop_own_state()

    def _kv_victim(self) -> tuple[int, int, int] | None:
        """(owner, -position, 1) of the deepest pages of the oldest stretch."""
        at = self._oldest_kv
        while at < self._current and self._bottom[at] <= self._top[at]:
            at += 1
        self._oldest_kv = at
        return (at, -self._bottom[at], 1) if at < self._current else None

    def _state_victim(self) -> tuple[int, int, int] | None:
        """(owner, -position, 0) of the deepest state of the oldest stretch that has one."""
        at = self._oldest_state
        while at < self._current and not self._states[at]:
            at += 1
        self._oldest_state = at
        return (at, -self._states[at][-1], 0) if at < self._current else None

    def _evict_kv(self, owner: int, lack: int) -> None:
        """Pages from the end up to the next state; a state at the very end goes before them."""
        bottom, states = self._bottom[owner], self._states[owner]
        if states and states[-1] == bottom:
            states.pop()
            self.used_states -= 1
            return
        stop = self._top[owner]
        if states and states[-1] < bottom:
            stop = max(stop, states[-1])
        count = min(-(-lack // self.pools.page), bottom - stop)
        self._bottom[owner] = bottom - count
        self.used_pages -= count

    def _drop_own_state(self) -> None:
        position = min(
            (p for p in self._mine if p != self._locked), key=lambda p: (self._mine[p], -p)
        )
        del self._mine[position]
        self.used_states -= 1
