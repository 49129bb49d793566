"""The nearest kept state above each state, kept up to date while states come and go.

A node is linked (`above`, and back by `below`) while it has a state or is watched. Whoever asks for
the gap of a linked node then need not walk up a chain of nodes that have none.
"""

from collections.abc import Iterable

from hybridsim.cache.radix_tree import Node


class Gaps:
    """Follows one tree. Cost of each call: the nodes walked to the states around, and the moved."""

    def __init__(self, root: Node) -> None:
        root.below = {}

    def saved(self, node: Node) -> Iterable[Node]:
        """`node` has got a state. Returns the linked nodes below, whose gaps are shorter now."""
        above, has_forks = _nearest_above(node)
        assert above.below is not None
        node.below = {}
        if node.above is None:
            _link(node, above)
        if not node.children or len(above.below) == 1:
            return ()
        # Without a fork in between, all that hangs from the state above hangs below this one.
        moved = _linked_below(node) if has_forks else [x for x in above.below if x is not node]
        for one in moved:
            del above.below[one]
            _link(one, node)
        return moved

    def dropped(self, node: Node) -> Iterable[Node]:
        """`node` has lost its state. Returns the linked nodes below, whose gaps are longer now."""
        moved, above = node.below, node.above
        assert moved is not None
        assert above is not None
        for one in moved:
            _link(one, above)
        node.below = None
        if not node.is_watched:
            _unlink(node)
        return moved

    def watch(self, node: Node) -> None:
        """Follow a node that may have no state."""
        node.is_watched = True
        if node.above is None:
            _link(node, _nearest_above(node)[0])

    def unwatch(self, node: Node) -> None:
        node.is_watched = False
        if not node.has_state:
            _unlink(node)

    def is_right(self, node: Node) -> bool:
        """For the law check."""
        is_linked = node.has_state or node.is_watched
        return node.above is (_nearest_above(node)[0] if is_linked else None)


def _link(node: Node, above: Node) -> None:
    assert above.below is not None
    node.above = above
    above.below[node] = None


def _unlink(node: Node) -> None:
    assert node.above is not None
    assert node.above.below is not None
    del node.above.below[node]
    node.above = None


def _nearest_above(node: Node) -> tuple[Node, bool]:
    """The nearest node above with a state, else the root; whether paths fork on the way there."""
    assert node.parent is not None
    above, has_forks = node.parent, len(node.parent.children) > 1
    while above.parent is not None and above.state_slot is None:
        above = above.parent
        has_forks = has_forks or len(above.children) > 1
    return above, has_forks


def _linked_below(node: Node) -> list[Node]:
    found, stack = [], list(node.children.values())
    while stack:
        step = stack.pop()
        if step.above is not None:
            found.append(step)
        if step.state_slot is None:
            stack.extend(step.children.values())
    return found
