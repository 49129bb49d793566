"""Which nodes go: leaf LRU (V1, SGLang+) and FLOP-aware scores (V2, V3)."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from hybridsim.engines.marconi.tree import Node, Tree
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.policies.base import FloatArray
from hybridsim.policies.eviction.scoring import spread


class Freed:
    """What one call evicted."""

    def __init__(self) -> None:
        self.num_tokens = 0
        self.num_states = 0


class Eviction(Protocol):
    """`refreshes_path`: a lookup refreshes all nodes it visits, else the last matched whole."""

    refreshes_path: bool

    def evict(self, tree: Tree, wanted_bytes: int, now: int) -> Freed:
        """Evict until that much is booked as freed, or nothing is left."""
        ...


class LeafLRU:
    """V1: the oldest leaf goes, edge and state; a parent without children becomes a leaf."""

    refreshes_path = True

    def __init__(self, formulas: MarconiFormulas) -> None:
        self._formulas = formulas

    def evict(self, tree: Tree, wanted_bytes: int, now: int) -> Freed:
        leaves = {node: None for node in tree.nodes() if not node.children}
        freed, freed_bytes = Freed(), 0
        while freed_bytes < wanted_bytes and leaves:
            victim = min(leaves, key=lambda node: node.accessed)
            del leaves[victim]
            freed_bytes += _node_bytes(self._formulas, victim)
            _drop_leaf(tree, victim, freed)
            parent = victim.parent
            if parent is not None and parent is not tree.root and not parent.children:
                leaves[parent] = None
        return freed


class FlopAware:
    """V3: the lowest U of all nodes with at most one child goes.

    U = spread(1 / (now - last access)) + alpha x spread(FLOPs saved a byte), over the candidates.
    A leaf frees its edge and its state. A node with one child frees its state and merges with it.
    copies_slips: as the artifact does, a leaf is booked with the bytes of the last candidate
    instead of its own, and the parent's MLP saving is taken by the attention formula.
    """

    refreshes_path = False

    def __init__(self, formulas: MarconiFormulas, alpha: float, *, copies_slips: bool) -> None:
        self.alpha = alpha
        self._formulas = formulas
        self._copies_slips = copies_slips
        self._gain = artifact_gain if copies_slips else corrected_gain

    def evict(self, tree: Tree, wanted_bytes: int, now: int) -> Freed:
        freed, freed_bytes = Freed(), 0
        while freed_bytes < wanted_bytes:
            candidates = [node for node in tree.nodes() if len(node.children) <= 1]
            if not candidates:
                break
            victim = candidates[int(self._scores(candidates, now).argmin())]
            if victim.children:
                freed_bytes += self._formulas.state_bytes
                freed.num_states += 1
                tree.merge_into_child(victim)
            else:
                booked = candidates[-1] if self._copies_slips else victim
                freed_bytes += _node_bytes(self._formulas, booked)
                _drop_leaf(tree, victim, freed)
        return freed

    def _scores(self, candidates: list[Node], now: int) -> FloatArray:
        recency = 1 / (now - np.array([node.accessed for node in candidates], dtype=np.float64))
        gains = np.array([self._gain_of(node) for node in candidates], dtype=np.float64)
        return spread(recency) + self.alpha * spread(gains)

    def _gain_of(self, node: Node) -> float:
        """Kept on the node as long as its edge stays the same."""
        if node.gain is None or node.gain[:2] != (node.start, node.end):
            gain = self._gain(self._formulas, node.end, node.start)
            node.gain = (node.start, node.end, gain)
        return node.gain[2]


Gain = Callable[[MarconiFormulas, int, int], float]


def corrected_gain(formulas: MarconiFormulas, num_tokens: int, num_parent_tokens: int) -> float:
    """FLOPs that a node saves over its parent, over the bytes of its state and whole prefix."""
    return formulas.flops_per_byte(num_tokens, num_parent_tokens)


def artifact_gain(formulas: MarconiFormulas, num_tokens: int, num_parent_tokens: int) -> float:
    """The same with the artifact's slip: the parent's MLP part by the attention formula."""
    slip = formulas.mlp_flops(num_parent_tokens) - formulas.attention_flops(num_parent_tokens)
    saved = formulas.saved_flops(num_tokens, num_parent_tokens) + formulas.num_mlp * slip
    return saved / (formulas.state_bytes + formulas.kv_bytes_per_token * num_tokens)


def _node_bytes(formulas: MarconiFormulas, node: Node) -> int:
    return formulas.state_bytes + formulas.kv_bytes_per_token * node.num_tokens


def _drop_leaf(tree: Tree, leaf: Node, freed: Freed) -> None:
    freed.num_tokens += leaf.num_tokens
    freed.num_states += 1
    tree.remove_leaf(leaf)
