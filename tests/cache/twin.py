"""A brute-force twin of the research cache under LRU: plain sets of prefixes, page by page.

It shares no code with the cache. A token is `(content id, offset in its span)`; a page is named by
all tokens up to its end; a state by all tokens before it. Every rule is written the slow way.
"""

from dataclasses import dataclass, field
from math import lcm

from tests.plain import Token, tokens_of

Prefix = tuple[Token, ...]


@dataclass(eq=False)
class TwinLease:
    tokens: Prefix
    num_prompt: int
    last: int
    committed: int
    private: int
    has_slot: bool
    source: Prefix | None
    plan: set[int]
    num_tokens: int
    evicted_tokens: int = 0
    evicted_states: int = 0
    skipped: int = 0
    saved: int = 0


@dataclass
class Twin:
    """`num_pages`, `num_slots`: limits of the split layout; `capacity_bytes`: of the shared one."""

    page: int
    num_pages: int
    num_slots: int
    refresh: str
    capacity_bytes: int | None = None
    page_bytes: int = 0
    slot_bytes: int = 1
    now: int = 0
    pages: dict[Prefix, int] = field(default_factory=dict)  # prefix -> last access
    states: dict[Prefix, int] = field(default_factory=dict)
    once: set[Prefix] = field(default_factory=set)
    leases: list[TwinLease] = field(default_factory=list)

    # -- questions

    def lookup(self, spans) -> tuple[int, int, int]:
        """(match, hit, deepest position whose state was there once), in tokens."""
        tokens = tuple(tokens_of(spans))
        match = 0
        while match + self.page <= len(tokens) and tokens[: match + self.page] in self.pages:
            match += self.page
        match = min(match, (spans.num_tokens - 1) // self.page * self.page)
        ends = range(match, 0, -self.page)
        hit = next((end for end in ends if tokens[:end] in self.states), 0)
        once = next((end for end in ends if end > hit and tokens[:end] in self.once), 0)
        return match, hit, once

    def used(self) -> tuple[int, int]:
        """(pages, slots) in use."""
        pages = len(self.pages) + sum(lease.private for lease in self.leases)
        return pages, len(self.states) + sum(lease.has_slot for lease in self.leases)

    def _room(self, need_pages, need_slots, freed_pages=0, freed_slots=0) -> bool:
        pages, slots = self.used()
        pages, slots = pages - freed_pages + need_pages, slots - freed_slots + need_slots
        if self.capacity_bytes is not None:
            return pages * self.page_bytes + slots * self.slot_bytes <= self.capacity_bytes
        return pages <= self.num_pages and slots <= self.num_slots

    def _lacks(self, need_pages, need_slots) -> tuple[bool, bool]:
        """(evicting KV helps, evicting a state helps)."""
        if self.capacity_bytes is not None:
            short = not self._room(need_pages, need_slots)
            return short, short
        pages, slots = self.used()
        return pages + need_pages > self.num_pages, slots + need_slots > self.num_slots

    def _locked(self) -> set[Prefix]:
        return {
            lease.tokens[:end]
            for lease in self.leases
            for end in range(self.page, lease.committed + 1, self.page)
        }

    def _can(self, need_pages, need_slots, keep_pages=frozenset(), keep_state=None) -> bool:
        locked = self._locked() | keep_pages
        free_pages = sum(prefix not in locked for prefix in self.pages)
        sources = {lease.source for lease in self.leases} | {keep_state}
        free_slots = sum(prefix not in sources for prefix in self.states)
        return self._room(need_pages, need_slots, free_pages, free_slots)

    # -- acts

    def _make_room(self, lease, need_pages, need_slots):
        while any(helps := self._lacks(need_pages, need_slots)):
            locked = self._locked()
            parents = {prefix[: -self.page] for prefix in self.pages}
            sources = {other.source for other in self.leases}
            victims = []
            if helps[0]:
                victims += [
                    (access, -len(prefix), 1, prefix)
                    for prefix, access in self.pages.items()
                    if prefix not in locked and prefix not in parents
                ]
            if helps[1]:
                victims += [
                    (access, -len(prefix), 0, prefix)
                    for prefix, access in self.states.items()
                    if prefix not in sources
                ]
            _, _, is_kv, prefix = min(victims)
            if prefix in self.states:
                del self.states[prefix]
                self.once.add(prefix)
                lease.evicted_states += 1
            elif is_kv:
                del self.pages[prefix]
                self.once.discard(prefix)
                lease.evicted_tokens += self.page

    def _touch(self, tokens, end):
        for stop in range(self.page, end + 1, self.page):
            self.pages[tokens[:stop]] = self.now
            if self.refresh == "path" and tokens[:stop] in self.states:
                self.states[tokens[:stop]] = self.now

    def acquire(self, request, positions) -> TwinLease | None:
        match, hit, _ = self.lookup(request.prompt)
        tokens = tuple(tokens_of(request.prompt.joined(request.output)))
        n = request.num_prompt_tokens
        last = n + max(request.num_output_tokens - 1, 0)
        need = -(-n // self.page) - match // self.page
        path = {tokens[:end] for end in range(self.page, match + 1, self.page)}
        source = tokens[:hit] if hit else None
        is_source_free = source is not None and all(x.source != source for x in self.leases)
        takes_over = False
        if not self._can(need, 1, path, source):
            if not is_source_free or not self._can(need, 0, path, source):
                return None
            takes_over = True
        grid = lcm(self.page, request.grid_tokens)
        known = min(last, len(tokens))
        plan = {min(p, known) // grid * grid for p in positions}
        plan = {p for p in plan if p > hit}
        lease = TwinLease(tokens, n, last, match, 0, False, source, plan, n)
        self.now += 1
        self._touch(tokens, match)
        if source is not None:
            self.states[source] = self.now
        self.leases.append(lease)
        self._make_room(lease, need, 0 if takes_over else 1)
        if takes_over:
            del self.states[source]
            self.once.add(source)
            lease.source = None
            lease.evicted_states += 1
        lease.private, lease.has_slot = need, True
        return lease

    def commit(self, lease, position):
        lease.source = None
        self.now += 1
        end = min(position, len(lease.tokens)) // self.page * self.page
        if end > lease.committed:
            for stop in range(lease.committed + self.page, end + 1, self.page):
                self.pages[lease.tokens[:stop]] = self.now
                lease.private -= 1
            lease.committed = end
        if position in lease.plan:
            self._save(lease, position)

    def _save(self, lease, position):
        prefix = lease.tokens[:position]
        if prefix in self.states:
            self.states[prefix] = self.now
        elif position == lease.last and lease.has_slot:
            lease.has_slot = False
            self._put(lease, prefix)
        elif self._can(0, 1):
            self._make_room(lease, 0, 1)
            self._put(lease, prefix)
        else:
            lease.skipped += 1

    def _put(self, lease, prefix):
        self.states[prefix] = self.now
        self.once.discard(prefix)
        lease.saved += 1

    def grow(self, lease, num_tokens) -> bool:
        extra = -(-num_tokens // self.page) - lease.committed // self.page - lease.private
        if extra > 0:
            if not self._can(extra, 0):
                return False
            self._make_room(lease, extra, 0)
            lease.private += extra
        lease.num_tokens = max(lease.num_tokens, num_tokens)
        return True

    def release(self, lease, finished):
        lease.source = None
        self.now += 1
        end = min(lease.last, len(lease.tokens)) // self.page * self.page
        if finished and lease.num_tokens >= lease.last and end > lease.committed:
            for stop in range(lease.committed + self.page, end + 1, self.page):
                self.pages[lease.tokens[:stop]] = self.now
            lease.private -= (end - lease.committed) // self.page
            lease.committed = end
        self._touch(lease.tokens, lease.committed)
        self.leases.remove(lease)
