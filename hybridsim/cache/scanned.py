"""Finding what goes next where all candidates must be scored together for each victim."""

from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from hybridsim.cache.gaps import Gaps
from hybridsim.cache.radix_tree import Node
from hybridsim.cache.victims import Victim, is_kv_candidate, is_state_candidate
from hybridsim.policies.base import Candidates, FloatArray, ScanningPolicy

_FEWEST_ROWS = 64


class _Rows:
    """The candidates of one kind, in the order in which they became ones, with their values.

    What was added or has changed is noted, and looked at when the rows are asked for: O(noted).
    A row that goes moves those behind it up, a copy of a few kilobytes.
    """

    def __init__(
        self,
        num_values: int,
        values_of: Callable[[Node], tuple[float, ...]],
        is_candidate: Callable[[Node], bool],
        on_change: Callable[[Node, bool], None] | None = None,
    ) -> None:
        self._values_of = values_of
        self._is_candidate = is_candidate
        self._on_change = on_change  # told of each node that becomes or stops being a row
        self._nodes: list[Node] = []
        self._serials: list[int] = []  # of the rows, rising: where a node's row is
        self._serial_of: dict[Node, int] = {}
        self._noted: dict[Node, None] = {}
        self._values: FloatArray = np.empty((num_values, _FEWEST_ROWS))
        self._num_added = 0

    def add(self, node: Node) -> None:
        self._noted[node] = None

    def changed(self, node: Node) -> None:
        if node in self._serial_of:
            self._noted[node] = None

    def candidates(self) -> Candidates:
        """All of them, up to date; good only until the next call."""
        noted, self._noted = self._noted, {}
        for node in noted:
            serial = self._serial_of.get(node)
            if self._is_candidate(node):
                row = self._append(node) if serial is None else bisect_left(self._serials, serial)
                for column, value in enumerate(self._values_of(node)):
                    self._values[column, row] = value
            elif serial is not None:
                self._remove(node, bisect_left(self._serials, serial))
        return Candidates(self._nodes, self._values[:, : len(self._nodes)])

    def none(self) -> Candidates:
        """No candidates."""
        return Candidates((), self._values[:, :0])

    def _append(self, node: Node) -> int:
        if len(self._nodes) == self._values.shape[1]:
            self._values = np.hstack((self._values, np.empty_like(self._values)))
        if self._on_change is not None:
            self._on_change(node, True)
        self._num_added += 1
        self._serial_of[node] = self._num_added
        self._serials.append(self._num_added)
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _remove(self, node: Node, row: int) -> None:
        num_rows = len(self._nodes)
        self._values[:, row : num_rows - 1] = self._values[:, row + 1 : num_rows]
        del self._nodes[row], self._serials[row], self._serial_of[node]
        if self._on_change is not None:
            self._on_change(node, False)

    def is_right(self, node: Node) -> bool:
        """Whether the node's row, or none, will be what it is to be when next asked for."""
        if node in self._noted:
            return True
        serial = self._serial_of.get(node)
        if not self._is_candidate(node) or serial is None:
            return not self._is_candidate(node) and serial is None
        row = bisect_left(self._serials, serial)
        return tuple(self._values[:, row]) == self._values_of(node)


class ScannedVictims:
    """Implements hybridsim.cache.victims.Victims for a ScanningPolicy.

    Of equal scores a state goes before KV, and what has been a candidate for longest first.
    gaps: also follows the KV candidates then, whose gaps the policy weighs too.
    """

    def __init__(self, eviction: ScanningPolicy, gaps: Gaps | None) -> None:
        self._eviction = eviction
        self._gaps = gaps
        num_values = eviction.num_values
        follow = None if gaps is None else self._follow
        self._kv = _Rows(num_values, eviction.kv_values, is_kv_candidate, follow)
        self._states = _Rows(num_values, eviction.state_values, is_state_candidate)

    def _follow(self, node: Node, is_candidate: bool) -> None:
        assert self._gaps is not None
        (self._gaps.watch if is_candidate else self._gaps.unwatch)(node)

    def add_kv(self, node: Node) -> None:
        self._kv.add(node)

    def add_state(self, node: Node) -> None:
        self._states.add(node)

    def changed(self, node: Node) -> None:
        self._kv.changed(node)
        self._states.changed(node)

    def next(self, kv_helps: bool, state_helps: bool, now: int) -> Victim | None:
        kv, states = self._kv.candidates(), self._states.candidates()
        kv = kv if kv_helps else self._kv.none()
        states = states if state_helps else self._states.none()
        kv_scores, state_scores = self._eviction.scores(kv, states, now)
        best: Victim | None = None
        for found, scores, is_kv in ((states, state_scores, False), (kv, kv_scores, True)):
            if len(found):
                row = int(scores.argmin())
                score = float(scores[row])
                if best is None or score < best.priority[0]:
                    node = found.items[row]
                    assert isinstance(node, Node)
                    best = Victim((score,), node, is_kv)
        return best

    def is_right(self, node: Node) -> bool:
        return self._kv.is_right(node) and self._states.is_right(node)
