"""All that has ever been computed or saved, forgetting nothing: the yardstick for misses."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from hybridsim.engines.content import Content

NEVER = -1


@dataclass(slots=True, eq=False)
class _Edge:
    """The tokens `[start, end)`: `content` knows no others.

    saved: positions in `(start, end]` with a state, rising.
    deepest_saved: the deepest position with a state on or below this edge, `NEVER` without one.
    """

    content: Content
    start: int
    end: int
    saved: list[int] = field(default_factory=list)
    deepest_saved: int = NEVER
    children: dict[Hashable, "_Edge"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Past:
    """What an endless cache would know of a prompt.

    num_ideal_tokens: computed before, within the limit asked for. num_saved_tokens: the deepest
    position within it at which a state was ever saved, 0 when none. saved_beyond: whether one was
    saved deeper, by a request that shares all of the ideal tokens.
    """

    num_ideal_tokens: int
    num_saved_tokens: int
    saved_beyond: bool


class History:
    """A prefix tree of every sequence so far, without eviction."""

    def __init__(self) -> None:
        self._root = _Edge(Content.of(), 0, 0)

    def look_up(self, content: Content, limit: int) -> Past:
        """What is known of the first `limit` tokens. Changes nothing."""
        edge, position, saved = self._root, 0, 0
        while position < limit:
            child = edge.children.get(content.page_key(position, 1))
            if child is None:
                return Past(position, saved, edge.deepest_saved > position)
            edge = child
            stop = min(limit, child.end)
            position = content.common_end(child.content, child.start, stop)
            saved = max([saved, *(at for at in child.saved if at <= position)])
            if position < child.end:
                break
        return Past(position, saved, edge.deepest_saved > position)

    def add(self, content: Content, num_tokens: int, saved: Iterable[int] = ()) -> None:
        """Remember the first `num_tokens` as computed and the positions at which states are."""
        positions = sorted(set(saved))
        edge, position = self._root, 0
        path = [edge]
        while position < num_tokens:
            edge = self._step(edge, content, position, num_tokens)
            path.append(edge)
            position = edge.end
        for edge in path[1:]:
            here = [at for at in positions if edge.start < at <= edge.end]
            if here:
                edge.saved = sorted({*edge.saved, *here})
        if positions:
            for edge in path:
                edge.deepest_saved = max(edge.deepest_saved, positions[-1])

    def _step(self, edge: _Edge, content: Content, position: int, stop: int) -> _Edge:
        """The edge along `content` below `position`, made or cut where there is none such."""
        key = content.page_key(position, 1)
        child = edge.children.get(key)
        if child is None:
            child = edge.children[key] = _Edge(content.piece(position, stop), position, stop)
            return child
        end = content.common_end(child.content, position, min(stop, child.end))
        if end == child.end:
            return child
        head = _Edge(child.content, child.start, end, deepest_saved=child.deepest_saved)
        head.saved = [at for at in child.saved if at <= end]
        child.saved = [at for at in child.saved if at > end]
        child.start = end
        head.children[child.content.page_key(end, 1)] = child
        edge.children[key] = head
        return head
