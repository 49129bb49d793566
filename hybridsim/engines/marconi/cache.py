"""Marconi's cache: look up the prompt, then insert prompt and output. Logical time."""

from hybridsim.engines.marconi.eviction import Eviction, Freed
from hybridsim.engines.marconi.served import Served
from hybridsim.engines.marconi.tree import Tree, Walk
from hybridsim.models.marconi import MarconiFormulas
from hybridsim.records import HitSource
from hybridsim.request import Spans


class MarconiCache:
    """At most two states a sequence: after its last token, and where it leaves the tree inside an
    edge. Time rises by one at each lookup (also the one inside an insertion), insertion and
    eviction. A sequence larger than the cache is inserted all the same, and what eviction removed
    of its prefix is simply inserted again, so the cache may overshoot.
    """

    def __init__(self, capacity_bytes: int, formulas: MarconiFormulas, eviction: Eviction) -> None:
        self.capacity_bytes = capacity_bytes
        self.formulas = formulas
        self.eviction = eviction
        self.tree = Tree()
        self._now = 0

    @property
    def num_states(self) -> int:
        return self.tree.num_nodes

    @property
    def num_tokens(self) -> int:
        return self.tree.num_tokens

    def serve(self, prompt: Spans, output: Spans) -> Served:
        walk = self._lookup(prompt)
        source = walk.nodes[-1].source if walk.nodes else HitSource.NONE
        num_added, freed = self._insert(prompt.joined(output))
        lost = (freed.num_tokens, freed.num_states) if freed else (0, 0)
        return Served(
            walk.num_tokens, walk.num_whole_tokens, source, num_added, *lost, freed is not None
        )

    def _lookup(self, spans: Spans) -> Walk:
        self._now += 1
        walk = self.tree.walk(spans)
        if self.eviction.refreshes_path:
            for node in (*walk.nodes, walk.partial):
                if node is not None:
                    node.accessed = self._now
        elif walk.nodes:
            walk.nodes[-1].accessed = self._now
        return walk

    def _insert(self, spans: Spans) -> tuple[int, Freed | None]:
        """Nodes added, and what went if there was no room."""
        self._now += 1
        walk = self._lookup(spans)
        num_new_tokens = spans.num_known_tokens - walk.num_tokens
        needed_bytes = self._bytes(num_new_tokens, 2 if walk.splits else 1)
        held_bytes = self._bytes(self.tree.num_tokens, self.tree.num_nodes)
        missing_bytes = held_bytes + needed_bytes - self.capacity_bytes
        freed = None
        if missing_bytes > 0:
            self._now += 1
            freed = self.eviction.evict(self.tree, missing_bytes, self._now)
        return self.tree.insert(spans, self._now), freed

    def _bytes(self, num_tokens: int, num_states: int) -> int:
        formulas = self.formulas
        return num_tokens * formulas.kv_bytes_per_token + num_states * formulas.state_bytes

    def check(self) -> None:
        self.tree.check()
