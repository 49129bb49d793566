"""Which states of a running request the research cache keeps: planned, saved and thinned out."""

from math import lcm

from hybridsim.cache.base import Lease
from hybridsim.cache.holding import Holding
from hybridsim.cache.radix_tree import Node
from hybridsim.cache.residents import Residents
from hybridsim.policies.base import Thinning
from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.records import HitSource
from hybridsim.request import Request


class Checkpoints:
    """Asks the policy where states are wanted, and keeps them there if a slot can be had.

    thinning: what keeps the states along one path few; None keeps all.
    """

    def __init__(
        self, residents: Residents, policy: CheckpointPolicy, thinning: Thinning | None
    ) -> None:
        self.policy = policy
        self._residents = residents
        self._thinning = thinning
        self._page_tokens = residents.tree.page_tokens

    def plan(self, lease: Lease) -> tuple[int, ...]:
        """Positions, rising, at which states of this request are to be saved."""
        request = lease.request
        grid = lcm(self._page_tokens, request.grid_tokens)
        last = request.num_final_tokens
        view = PromptView(request, lease.num_hit_tokens, lease.num_match_tokens, last, grid)
        known = min(last, lease.handle.key.num_tokens)
        positions = self.policy.positions_on_grid(view, known)
        return tuple(self._thinning.planned(view, positions) if self._thinning else positions)

    def save(self, lease: Lease, position: int) -> None:
        """Keep a copy of the running state; at the request's very end, the state itself.

        The lease's KV up to `position` is in the tree. Positions only rise.
        """
        holding: Holding = lease.handle
        node = self._path_node(holding, position)
        if node.has_state:
            self._residents.touch_state(node)
            return
        slot = self._slot(lease, position)
        if slot is None:
            lease.num_skipped_checkpoints += 1
            return
        source = _source(lease.request, position, self._page_tokens)
        self._residents.put_state(node, slot, source)
        lease.num_checkpoints += 1
        if self._thinning is not None:
            self._thin(self._thinning, lease, node)

    def _slot(self, lease: Lease, position: int) -> int | None:
        """A slot with the running state in it; None where none can be had."""
        holding: Holding = lease.handle
        memory = self._residents.memory
        if position == lease.request.num_final_tokens and holding.slot is not None:
            slot, holding.slot = holding.slot, None
            return slot
        if not self._residents.can_have(0, 1):
            return None
        self._residents.make_room(lease, 0, 1)
        lease.num_copied_bytes += memory.slot_bytes
        return memory.slots.take()

    def _thin(self, thinning: Thinning, lease: Lease, node: Node) -> None:
        """Drop what the path of a new state can spare."""
        states = [step for step in node.path() if step.has_state][::-1]
        for item in thinning.dropped(states):
            assert isinstance(item, Node)
            self._residents.drop_state(lease, item)

    def _path_node(self, holding: Holding, position: int) -> Node:
        """The node on the lease's path that ends at `position`; splits an edge to have one.

        Positions only rise, so that all of a lease's calls cost O(path) together.
        """
        while holding.matched and holding.matched[-1].end < position:
            holding.matched.pop()
        node = holding.matched[-1] if holding.matched else holding.node
        while node.start >= position:
            assert node.parent is not None
            node = node.parent
        return node if node.end == position else self._residents.split(node, position)


def _source(request: Request, position: int, page_tokens: int) -> HitSource:
    """Where in its request a checkpoint lies."""
    if position > request.num_prompt_tokens:
        return HitSource.OUTPUT
    is_last = position > request.num_prompt_tokens - lcm(page_tokens, request.grid_tokens)
    return HitSource.PROMPT_END if is_last else HitSource.PREFIX
