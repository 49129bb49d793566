"""What the research cache keeps for a lookup and for a running request."""

from dataclasses import dataclass
from enum import Enum

from hybridsim.cache.edge import PathKey
from hybridsim.cache.radix_tree import Node, Walk


class Admission(Enum):
    """How a request can start now."""

    WAIT = "memory is held by others"
    COPY = "with a slot of its own, into which a matched state is copied"
    TAKE_OVER = "in the slot of the matched state, for want of another"


@dataclass(slots=True, eq=False)
class Holding:
    """What the cache keeps for one lease.

    `node`: the deepest node of the lease's own path; its path is locked. `private_pages`: KV that
    is not in the tree. `source`: the node whose state is being copied, until the first step ends.
    `planned`: positions where a state is to be saved.
    `matched`: nodes of the path behind the hit, deepest first, down to the next checkpoint.
    """

    key: PathKey
    node: Node
    slot: int | None
    private_pages: int
    source: Node | None
    matched: list[Node]
    planned: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup hands to acquire: only good while the cache does not change."""

    key: PathKey
    walk: Walk
    hit_node: Node | None
