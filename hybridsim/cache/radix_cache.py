"""The research cache: a hybrid radix tree over paged KV and slots of recurrent state.

KV is shared along the tree; a state is kept only where a checkpoint policy asked for one, and a
hit continues from a copy of it (copy-on-write). What an engine would do differently is modelled in
hybridsim.engines; here the rules are the plain ones, with the policies left open.
"""

from math import lcm
from typing import ClassVar

from hybridsim.cache import laws
from hybridsim.cache.base import CacheUsage, Lease, Match
from hybridsim.cache.checkpoints import Checkpoints
from hybridsim.cache.edge import PathKey
from hybridsim.cache.holding import Admission, Found, Holding
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_tree import Node, RadixTree, Walk
from hybridsim.cache.residents import Residents
from hybridsim.policies.base import EvictionPolicy, Setting, Thinning
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.policies.make import check_layout
from hybridsim.records import HitSource
from hybridsim.request import Request, Spans


class RadixCache:
    """Implements hybridsim.cache.base.PrefixCache.

    compute_last_token: at least one prompt token is computed (its logits are needed), so a hit is
    at most n - 1 tokens; False gives the ideal of `trace stats`.
    cache_outputs: keep generated tokens whose content the trace knows.
    thinning: what keeps the states along one path few; None keeps all.
    UserError if the eviction policy means nothing in the memory's layout.
    """

    tree_type: ClassVar[type[RadixTree]] = RadixTree

    def __init__(
        self,
        memory: Memory,
        page_tokens: int,
        checkpoint: CheckpointPolicy,
        eviction: EvictionPolicy,
        *,
        compute_last_token: bool = True,
        cache_outputs: bool = True,
        thinning: Thinning | None = None,
    ) -> None:
        check_layout(eviction, memory.layout)
        self.memory = memory
        self.page_tokens = page_tokens
        self.compute_last_token = compute_last_token
        self.cache_outputs = cache_outputs
        self.is_hybrid = memory.slot_bytes > 0
        self.tree = self.tree_type(page_tokens)
        self.residents = Residents(self.tree, memory, eviction)
        self.checkpoints = Checkpoints(self.residents, checkpoint, thinning)
        self.leases: set[Lease] = set()
        self._last_key: tuple[Spans, PathKey] | None = None
        self._is_prepared = not eviction.needs_setting

    def prepare(self, setting: Setting) -> None:
        """Tell the policies what they may know beforehand; before the first request."""
        self.residents.eviction.prepare(setting)
        self._is_prepared = True

    # -- questions

    def lookup(self, request: Request) -> Match:
        key = self._prompt_key(request)
        walk = self.tree.walk(key)
        limit = request.num_prompt_tokens - (1 if self.compute_last_token else 0)
        match = self._floor(min(walk.num_tokens, max(limit, 0)))
        hit_node, once = walk.deepest_state(match)
        hit = hit_node.end if hit_node else 0
        source = hit_node.state_source if hit_node else HitSource.NONE
        if not self.is_hybrid:
            hit, source = match, HitSource.KV_ONLY if match else HitSource.NONE
        return Match(
            match,
            hit,
            source,
            once,
            is_first_fork=walk.partial is not None,
            saves_states=self.checkpoints.policy.saves_states,
            page_tokens=self.page_tokens,
            grid_tokens=lcm(self.page_tokens, request.grid_tokens),
            node=Found(key, walk, hit_node),
        )

    def fits(self, request: Request) -> bool:
        return self.memory.holds(self._pages(request.num_final_tokens), int(self.is_hybrid))

    def usage(self) -> CacheUsage:
        peak_kv_bytes, peak_state_bytes = self.memory.peak_bytes()
        return CacheUsage(
            self.memory.kv_bytes, self.memory.state_bytes, peak_kv_bytes, peak_state_bytes
        )

    def check(self) -> None:
        laws.check(self)

    # -- acts

    def acquire(
        self, request: Request, match: Match, num_tokens: int | None = None
    ) -> Lease | None:
        assert self._is_prepared, "the eviction policy wants a setting: call prepare first"
        found: Found = match.node
        num_tokens = num_tokens or request.num_prompt_tokens
        new_pages = self._pages(num_tokens) - match.num_match_tokens // self.page_tokens
        admission = self._admission(found, match, new_pages)
        if admission is Admission.WAIT:
            return None
        self.residents.begin(request, match.num_hit_tokens)
        node = self._node_at(found.walk, match.num_match_tokens)
        self.residents.lock_path(node, found.hit_node)
        lease = Lease(request, match.num_match_tokens, match.num_hit_tokens)
        key = found.key
        if self.cache_outputs and len(request.output.ids):
            key = self._whole_key(request)
        matched = [step for step in node.path() if step.end > match.num_hit_tokens]
        lease.handle = Holding(key, node, None, new_pages, found.hit_node, matched)
        self._admit(lease, admission)
        lease.num_tokens = num_tokens
        lease.num_committed_tokens = match.num_match_tokens
        lease.checkpoints = self.checkpoints.plan(lease) if self.is_hybrid else ()
        lease.handle.planned = frozenset(lease.checkpoints)
        self.leases.add(lease)
        return lease

    def commit(self, lease: Lease, num_tokens: int) -> None:
        self._copied(lease)
        self.residents.tick(lease.request)
        self._insert(lease, num_tokens)
        if num_tokens in lease.handle.planned:
            self.checkpoints.save(lease, num_tokens)

    def grow(self, lease: Lease, num_tokens: int) -> bool:
        holding: Holding = lease.handle
        committed_pages = lease.num_committed_tokens // self.page_tokens
        extra = self._pages(num_tokens) - committed_pages - holding.private_pages
        if extra > 0:
            if not self.residents.can_have(extra, 0):
                return False
            self.residents.make_room(lease, extra, 0)
            self.memory.pages.take(extra)
            holding.private_pages += extra
        lease.num_tokens = max(lease.num_tokens, num_tokens)
        return True

    def release(self, lease: Lease, *, finished: bool) -> None:
        self._copied(lease)
        self.residents.tick(lease.request)
        holding: Holding = lease.handle
        last = lease.request.num_final_tokens
        if finished and self.cache_outputs and lease.num_tokens >= last:
            self._insert(lease, last)
        if holding.slot is not None:
            self.memory.slots.give(holding.slot)
        self.memory.pages.give(holding.private_pages)
        self.residents.unlock_path(holding.node)
        self.leases.remove(lease)

    # -- parts of acquire

    def _admission(self, found: Found, match: Match, new_pages: int) -> Admission:
        kept_pages = self.residents.unlocked_pages(found.walk, match.num_match_tokens)
        kept_slots = 1 if found.hit_node is not None and not found.hit_node.state_locks else 0
        if self.residents.can_have(new_pages, int(self.is_hybrid), kept_pages, kept_slots):
            return Admission.COPY
        if kept_slots and self.residents.can_have(new_pages, 0, kept_pages, kept_slots):
            return Admission.TAKE_OVER
        return Admission.WAIT

    def _admit(self, lease: Lease, admission: Admission) -> None:
        """Take pages for the prompt and a slot for the running state."""
        holding: Holding = lease.handle
        takes_over = admission is Admission.TAKE_OVER
        num_slots = 1 if self.is_hybrid and not takes_over else 0
        self.residents.make_room(lease, holding.private_pages, num_slots)
        self.memory.pages.take(holding.private_pages)
        if takes_over:
            assert holding.source is not None
            holding.slot = self.residents.take_over_state(holding.source)
            holding.source = None
            lease.num_evicted_states += 1
        elif self.is_hybrid:
            holding.slot = self.memory.slots.take()
            lease.num_copied_bytes += self.memory.slot_bytes if holding.source else 0

    def _node_at(self, walk: Walk, num_tokens: int) -> Node:
        """The node that ends at `num_tokens` on the walked path; splits an edge to have one."""
        if num_tokens == 0:
            return self.tree.root
        for node in (*walk.nodes, walk.partial):
            assert node is not None
            if node.end == num_tokens:
                return node
            if node.end > num_tokens:
                return self.residents.split(node, num_tokens)
        raise AssertionError("a match must lie on the walked path")

    # -- parts of commit

    def _copied(self, lease: Lease) -> None:
        """The first step is over: the source of the copy may be evicted from now on."""
        holding: Holding = lease.handle
        if holding.source is not None:
            self.residents.unlock_state(holding.source)
            holding.source = None

    def _insert(self, lease: Lease, num_tokens: int) -> None:
        """Move the lease's KV up to `num_tokens` into the tree, and its lock down along with it."""
        holding: Holding = lease.handle
        end = self._floor(min(num_tokens, holding.key.num_tokens))
        if end <= lease.num_committed_tokens:
            return
        node, num_adopted_tokens = self.residents.extend(holding.key, holding.node, end)
        num_adopted_pages = num_adopted_tokens // self.page_tokens
        self.memory.pages.give(num_adopted_pages)  # others brought them meanwhile
        holding.private_pages -= (end - lease.num_committed_tokens) // self.page_tokens
        holding.node = node
        lease.num_committed_tokens = end

    # -- sizes

    def _prompt_key(self, request: Request) -> PathKey:
        """The prompt's key, remembered, because a waiting request is looked up again and again."""
        spans = request.prompt
        if self._last_key is None or self._last_key[0] is not spans:
            self._last_key = (spans, PathKey(spans, self.page_tokens))
        return self._last_key[1]

    def _whole_key(self, request: Request) -> PathKey:
        return PathKey(request.prompt.joined(request.output), self.page_tokens)

    def _floor(self, num_tokens: int) -> int:
        return num_tokens - num_tokens % self.page_tokens

    def _pages(self, num_tokens: int) -> int:
        return -(-num_tokens // self.page_tokens)
