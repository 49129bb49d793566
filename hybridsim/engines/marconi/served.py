"""What a Marconi cache says about one request."""

from dataclasses import dataclass
from typing import Protocol

from hybridsim.records import HitSource
from hybridsim.request import Spans


@dataclass(frozen=True, slots=True)
class Served:
    """`did_evict`: there was no room, so the cache looked for victims."""

    num_match_tokens: int
    num_hit_tokens: int
    hit_source: HitSource
    num_added_states: int
    num_evicted_tokens: int
    num_evicted_states: int
    did_evict: bool


class Cache(Protocol):
    """Serves sequences one after another."""

    @property
    def num_states(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    def serve(self, prompt: Spans, output: Spans) -> Served: ...

    def check(self) -> None: ...
