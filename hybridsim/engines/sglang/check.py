"""The laws of an idle server, as sums over owners: every page and slot has exactly one."""

from hybridsim.engines.sglang.node import Kind, Node
from hybridsim.engines.sglang.tree import Tree


def check(tree: Tree) -> None:
    """Raise AssertionError with the numbers if a law is broken. For use between requests."""
    nodes = list(tree.walk())
    _check_shape(tree, nodes)
    _check_ledger(tree, nodes)
    _check_pools(tree, nodes)
    _check_lists(tree, nodes)


def _check_shape(tree: Tree, nodes: list[Node]) -> None:
    for node in nodes:
        parent = node.parent
        assert parent is not None
        assert parent.end == node.start < node.end, f"edge {node.start}..{node.end} does not fit"
        assert node.start % tree.page_size == 0 == node.end % tree.page_size, "edge off the pages"
        assert node.full.held, f"node {node.serial} without KV"
        key = node.content.page_key(node.start, tree.page_size)
        assert parent.children[key] is node, f"node {node.serial} under a wrong key"
        agreed = parent.content.common_end(node.content, parent.start, parent.end)
        assert agreed == parent.end, f"node {node.serial} does not continue its parent"


def _check_ledger(tree: Tree, nodes: list[Node]) -> None:
    for kind in Kind:
        evictable = sum(node.amount(kind) for node in nodes if not node.parts[kind].locks)
        protected = sum(node.amount(kind) for node in nodes if node.parts[kind].locks)
        ledger = (tree.ledger.evictable(kind), tree.ledger.protected(kind))
        assert ledger == (evictable, protected), f"{kind.name}: {ledger} in the books"
        locks = sum(node.parts[kind].locks for node in nodes)
        assert locks == 0, f"{locks} {kind.name} locks without a request"


def _check_pools(tree: Tree, nodes: list[Node]) -> None:
    pools = tree.pools
    kv_pages = sum(node.amount(Kind.FULL) for node in nodes) // pools.page_size
    swa_pages = sum(node.amount(Kind.SWA) for node in nodes) // pools.page_size
    states = sum(node.amount(Kind.STATE) for node in nodes)
    owned = [(pools.kv_pages, kv_pages), (pools.swa_pages, swa_pages), (pools.checkpoints, states)]
    if pools.separate_checkpoints:
        owned.append((pools.slots, 0))
    for pool, in_tree in owned:
        total = pool.num_free + in_tree
        assert total == pool.capacity, f"{pool.num_free} free + {in_tree} kept != {pool.capacity}"


def _check_lists(tree: Tree, nodes: list[Node]) -> None:
    for component in tree.components:
        if component.kind is Kind.FULL:
            continue
        listed = {node.serial for node in component.recency.oldest_first()}
        holding = {node.serial for node in nodes if node.parts[component.kind].held}
        assert listed == holding, f"{component.kind.name} recency list differs from the tree"
    leaves = sum(1 for node in nodes if not node.children and not node.is_locked)
    assert leaves == len(tree.leaves), f"{len(tree.leaves)} of {leaves} leaves in the queue"
