"""Putting what a request has computed into the tree."""

from hybridsim.engines.sglang.components import Insertion
from hybridsim.engines.sglang.node import Kind, Node
from hybridsim.engines.sglang.tree import Tree


def insert(tree: Tree, insertion: Insertion) -> Node:
    """Put `content[:end]` into the tree and attach what it brings; the node it ends on.

    Nodes already there stay, and the request's copies of their KV are counted as released.
    `insertion.end` must be a page boundary above 0.
    """
    node = tree.root
    node.last_access = tree.clock.tick()
    while node.end < insertion.end:
        child = tree.child_of(node, insertion.content)
        if child is None:
            break
        node = _pass(tree, child, insertion)
    is_new = node.end < insertion.end
    if is_new:
        node = _add_leaf(tree, node, insertion)
    for component in tree.components:
        component.commit(node, is_new, insertion)
    if insertion.capped_tail is not None:
        tree.states.cap_path(insertion.capped_tail)
    for component in tree.components:
        component.refresh_after_insert(node)
    if is_new:
        _count_use(tree, node, insertion)
    tree.update_leaf(node)
    return node


def _pass(tree: Tree, child: Node, insertion: Insertion) -> Node:
    """One node that the insertion shares with the tree, cut where they part."""
    child.last_access = tree.clock.tick()
    start = child.start
    end = tree.agreement(insertion.content, child, insertion.end)
    node = child if end == child.end else tree.split(child, end)
    node.priority = max(node.priority, insertion.priority)
    claimed_from = min(part.claim_overlap(node, start, insertion) for part in tree.components)
    insertion.release(max(start, insertion.num_shared), claimed_from)
    # Of what the tree took over, one copy of the full-attention KV is left over all the same.
    insertion.num_released += node.end - claimed_from
    _count_use(tree, node, insertion)
    return node


def _count_use(tree: Tree, node: Node, insertion: Insertion) -> None:
    """A request counts once on each node, however often it hands over."""
    if node.end > insertion.num_counted:
        node.hit_count += 1
    tree.update_leaf(node)


def _add_leaf(tree: Tree, parent: Node, insertion: Insertion) -> Node:
    leaf = tree.new_node(insertion.content, parent.end, insertion.end, parent)
    leaf.priority = insertion.priority
    leaf.full.held = True
    parent.children[insertion.content.page_key(leaf.start, tree.page_size)] = leaf
    tree.ledger.credit(Kind.FULL, leaf)
    if tree.tracks_history:
        _raise_history(leaf)
    tree.update_leaf(leaf)
    tree.update_leaf(parent)
    return leaf


def _raise_history(leaf: Node) -> None:
    """Let the branch remember how deep it has been."""
    one: Node | None = leaf
    while one is not None and one.history_tokens < leaf.end:
        one.history_tokens = leaf.end
        one = one.parent
