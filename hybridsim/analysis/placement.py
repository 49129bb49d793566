"""Where states come to lie on the trie, for policies whose positions depend on requests alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from hybridsim.analysis.passes import Passes, PathTree
from hybridsim.errors import UserError
from hybridsim.policies import CHECKPOINT
from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.policies.checkpoint.union import Union
from hybridsim.request import Int64Array, Request
from hybridsim.trie import ROOT

UNNAMED = np.iinfo(np.int64).max
_NUM_PROBES = 256


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """States on a tree. `tree` may be finer than the trie it came from: states lie at node ends.

    `named_by`, `[num_nodes]`: the first request that wants a state at the node's end, or UNNAMED.
    `name_request`, `name_node`, `[num_names]`: every wish, in request order.
    `stride`: instead, there is a state at each multiple of so many units, as deep as any request
    goes; None where `named_by` counts.
    """

    tree: PathTree
    named_by: Int64Array
    name_request: Int64Array
    name_node: Int64Array
    stride: int | None = None

    @staticmethod
    def empty(tree: PathTree) -> "Placement":
        """No states anywhere."""
        none = np.empty(0, dtype=np.int64)
        return Placement(tree, np.full(len(tree.parent), UNNAMED, dtype=np.int64), none, none)

    def named_passes(self, passes: Passes) -> np.ndarray:
        """Which passes ask for a state at their node's end, `[num_passes]` bool."""
        named = np.zeros(len(passes.node), dtype=bool)
        level = self.tree.levels()[self.name_node]
        named[passes.first[self.name_request] + level - 1] = True
        return named

    def is_left_by_all(self, requests: Sequence[Request], page_tokens: int) -> bool:
        """Whether each request asks for a state at its very end, and so leaves its running one."""
        finals = np.array([request.num_final_tokens for request in requests], dtype=np.int64)
        ends = self.tree.end[self.tree.last_node] * page_tokens == finals  # of known content
        if self.stride is not None:
            return bool((ends & (finals % (self.stride * page_tokens) == 0)).all())
        tokens = self.tree.end[self.name_node] * page_tokens
        leaves = np.unique(self.name_request[tokens == finals[self.name_request]])
        return len(leaves) == len(requests)


def place_states(
    requests: Sequence[Request],
    tree: PathTree,
    page_tokens: int,
    policy: CheckpointPolicy,
    *,
    outputs: bool,
    place: str = "cache.checkpoint",
) -> Placement:
    """The states that `policy` names; UserError at `place` if it looks at what is resident."""
    if not policy.saves_states:
        return Placement.empty(tree)
    stride_tokens = _stride_tokens(requests, page_tokens, policy, outputs)
    if stride_tokens is not None:
        return replace(Placement.empty(tree), stride=stride_tokens // page_tokens)
    _refuse_residency(requests, page_tokens, policy, outputs, place)
    named = _Names(tree)
    for index, request in enumerate(requests):
        positions = named_positions(request, page_tokens, policy, outputs)
        named.add(index, [position // page_tokens for position in positions])
    return _refined(tree, named)


def named_positions(
    request: Request, page_tokens: int, policy: CheckpointPolicy, outputs: bool
) -> list[int]:
    """Tokens at which the research cache keeps states of this request if nothing is resident."""
    return _positions(request, page_tokens, policy, outputs, 0, 0)


def _positions(
    request: Request,
    page_tokens: int,
    policy: CheckpointPolicy,
    outputs: bool,
    num_hit_tokens: int,
    num_match_tokens: int,
) -> list[int]:
    last, known = _ends(request, outputs)
    grid = lcm(page_tokens, request.grid_tokens)
    view = PromptView(request, num_hit_tokens, num_match_tokens, last, grid)
    return policy.positions_on_grid(view, known)


def _ends(request: Request, outputs: bool) -> tuple[int, int]:
    """Tokens that are computed in all, and those of them whose content can be found again."""
    last = request.num_final_tokens
    known = request.prompt.num_known_tokens
    if outputs and known == request.num_prompt_tokens:
        known += request.output.num_known_tokens
    return last, min(last, known)


def _stride_tokens(
    requests: Sequence[Request], page_tokens: int, policy: CheckpointPolicy, outputs: bool
) -> int | None:
    """Distance of states if all requests have theirs at the same multiples; else None."""
    grids = {lcm(page_tokens, request.grid_tokens) for request in requests}
    if len(grids) != 1:
        return None
    grid = grids.pop()
    stride = policy.stride_tokens(grid)
    if stride is None:
        return None
    # The cache moves a position in unknown output back to where the known content ends.
    for last, known in (_ends(request, outputs) for request in requests):
        if last // stride * stride > known and known // grid * grid % stride:
            return None
    return stride


def _refuse_residency(
    requests: Sequence[Request],
    page_tokens: int,
    policy: CheckpointPolicy,
    outputs: bool,
    place: str,
) -> None:
    """Ask again with other hits and matches: no position behind the hit may change."""
    for request in requests[:: max(1, len(requests) // _NUM_PROBES)]:
        alone = named_positions(request, page_tokens, policy, outputs)
        num_tokens = request.num_prompt_tokens
        for hit, match in ((0, num_tokens // 2), (num_tokens // 3, num_tokens)):
            asked = _positions(request, page_tokens, policy, outputs, hit, match)
            if asked != [p for p in alone if p > hit]:
                raise UserError(
                    place,
                    f"{_name_of(policy)!r} keeps states where it finds the cache's content to "
                    "end, which differs from capacity to capacity, so that one pass cannot tell; "
                    "allowed: policies that look at the request alone (prompt_end, turn_end, "
                    "every, all_blocks, sqrt, log, balanced), or replays at some sizes (--grid)",
                )


def _name_of(policy: CheckpointPolicy) -> str:
    """As users write it, without parameters."""
    if isinstance(policy, Union):
        return "+".join(map(_name_of, policy.parts))
    names = (name for name, kind in CHECKPOINT.items() if kind is type(policy))
    return next(names, type(policy).__name__)


class _Names:
    """Collects wishes as (request, node, units), in request order."""

    def __init__(self, tree: PathTree) -> None:
        self._parent = tree.parent.tolist()
        self._start = tree.start.tolist()
        self._last = tree.last_node.tolist()
        self.rows: list[tuple[int, int, int]] = []

    def add(self, request: int, positions: list[int]) -> None:
        """Name rising positions on the request's own path. O(positions + nodes on the path)."""
        node = self._last[request]
        rows = []
        for units in reversed(positions):
            while node != ROOT and self._start[node] >= units:
                node = self._parent[node]
            if node == ROOT:
                break
            rows.append((request, node, units))
        self.rows += reversed(rows)


def _refined(tree: PathTree, names: _Names) -> Placement:
    """Split nodes so that each named position is a node's end; the old number stays below."""
    parent, start = tree.parent.tolist(), tree.start.tolist()
    end, unit_tokens = tree.end.tolist(), tree.unit_tokens.tolist()
    node_at: dict[tuple[int, int], int] = {}
    for node, units in sorted({(node, units) for _, node, units in names.rows}):
        node_at[node, units] = node
        if units == end[node]:
            continue
        node_at[node, units] = len(parent)
        parent.append(parent[node])
        start.append(start[node])
        end.append(units)
        unit_tokens.append(unit_tokens[node])
        parent[node], start[node] = len(parent) - 1, units
    fine = replace(
        tree,
        parent=np.array(parent, dtype=np.int64),
        start=np.array(start, dtype=np.int64),
        end=np.array(end, dtype=np.int64),
        unit_tokens=np.array(unit_tokens, dtype=np.int64),
    )
    request = np.array([row[0] for row in names.rows], dtype=np.int64)
    node_of = np.array([node_at[row[1], row[2]] for row in names.rows], dtype=np.int64)
    by = np.full(len(parent), UNNAMED, dtype=np.int64)
    np.minimum.at(by, node_of, request)
    return Placement(fine, by, request, node_of)
