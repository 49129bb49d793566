"""Making room: walks over leaves and recency lists until a shortage is over."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hybridsim.engines.content import Content
from hybridsim.engines.sglang.node import Kind, Node
from hybridsim.engines.sglang.tree import Tree


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node as it was: the tokens `[start, end)` of a sequence."""

    start: int
    end: int
    content: Content = field(repr=False, compare=False)


@dataclass(slots=True)
class Eviction:
    """One walk: what was asked for, what went, and which nodes it hit.

    deleted: leaves that went with their KV. tombstoned: nodes that lost their state only.
    """

    asked_tokens: int
    asked_states: int
    got_tokens: int = 0
    got_states: int = 0
    deleted: list[NodeRef] = field(default_factory=list)
    tombstoned: list[NodeRef] = field(default_factory=list)


class Evictor:
    """Evicts from one tree; `log` collects the walks that freed anything."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.log: list[Eviction] = []

    def for_allocation(self, tokens: int = 0, states: int = 0, window: int = 0) -> None:
        """Make an allocation possible that is short of so much; stop as soon as it is."""
        self._walk_all({Kind.FULL: tokens, Kind.SWA: window, Kind.STATE: states}, to_target=True)

    def states(self, num_states: int) -> None:
        """Evict that many states, wherever the slots go that they leave."""
        self._walk_all({Kind.FULL: 0, Kind.SWA: 0, Kind.STATE: num_states}, to_target=False)

    def _walk_all(self, asked: dict[Kind, int], to_target: bool) -> None:
        pools = self._tree.pools
        targets = {kind: pools.available(kind) + n for kind, n in asked.items() if n > 0}
        record = Eviction(asked[Kind.FULL], asked[Kind.STATE])
        freed = [0, 0, 0]
        for component in self._tree.components:
            kind = component.kind
            quota = asked[kind]

            def done(kind: Kind = kind) -> bool:
                return to_target and kind in targets and pools.available(kind) >= targets[kind]

            if done() or (quota <= freed[kind] and not (kind is Kind.FULL and quota > 0)):
                continue
            if kind is Kind.FULL:
                self._walk_leaves(freed, record, done)
            else:
                self._walk_recency(kind, quota, freed, record, done)
        record.got_tokens, record.got_states = freed[Kind.FULL], freed[Kind.STATE]
        if record.got_tokens or record.got_states:
            self.log.append(record)

    def _walk_leaves(self, freed: list[int], record: Eviction, done: Callable[[], bool]) -> None:
        """Whole leaves in the policy's order; a parent left bare joins them."""
        while not done():
            leaf = self._tree.leaves.lowest()
            if leaf is None:
                return
            self._delete(leaf, freed, record)

    def _walk_recency(
        self,
        kind: Kind,
        quota: int,
        freed: list[int],
        record: Eviction,
        done: Callable[[], bool],
    ) -> None:
        """Oldest first: a leaf goes whole, its KV included; elsewhere only this data goes."""
        recency = self._tree.component(kind).recency
        node = recency.oldest_unlocked()
        while freed[kind] < quota and node is not None:
            after = recency.next_unlocked(node)
            if node.is_leaf:
                self._delete(node, freed, record)
            else:
                self._strip(kind, node, freed, record)
            if done():
                return
            node = after if after is None or recency.holds(after) else recency.oldest_unlocked()

    def _delete(self, leaf: Node, freed: list[int], record: Eviction) -> None:
        for kind, amount in enumerate(self._tree.delete_leaf(leaf)):
            freed[kind] += amount
        record.deleted.append(NodeRef(leaf.start, leaf.end, leaf.content))

    def _strip(self, kind: Kind, node: Node, freed: list[int], record: Eviction) -> None:
        """Take `kind` off an inner node, and with it whatever needs it there."""
        rank = self._tree.component(kind).inner_rank
        for component in self._tree.components:
            part = node.parts[component.kind]
            if component.inner_rank > rank or not part.held:
                continue
            if component.kind is Kind.STATE:
                record.tombstoned.append(NodeRef(node.start, node.end, node.content))
            freed[component.kind] += self._tree.drop(component.kind, node)
        self._tree.update_leaf(node)
