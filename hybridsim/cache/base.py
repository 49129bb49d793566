"""The seam between a prefix cache and whoever drives it (replay, the scheduler, an engine).

`lookup` changes nothing; `acquire`, `commit`, `grow` and `release` act. A driver calls, for one
request and in this order: lookup, acquire, `commit` at every planned checkpoint position in rising
order and at the prompt's end, `grow` while it decodes (before the token is computed), release.
A state exists only at the moment when exactly that many tokens are computed, so a driver ends a
step at each planned position, and commits it right then.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from hybridsim.records import HitSource
from hybridsim.request import Request


@dataclass(frozen=True, slots=True)
class Match:
    """What a lookup found: `num_hit_tokens <= num_match_tokens <= num_prompt_tokens`.

    match: KV of the prefix is resident. hit: KV is resident and a state was saved exactly there.
    `num_once_tokens`: deepest matched position whose state was kept once and evicted since.
    `is_first_fork`: nobody left the resident tree at this point before.
    `saves_states`: the policy asks for states at all.
    `page_tokens`, `grid_tokens`: KV is matched, and a state kept, at multiples of these only.
    `node` is the cache's own handle; it is good only until the cache next changes.
    """

    num_match_tokens: int
    num_hit_tokens: int
    hit_source: str = HitSource.NONE
    num_once_tokens: int = 0
    is_first_fork: bool = False
    saves_states: bool = True
    page_tokens: int = 1
    grid_tokens: int = 1
    node: Any = None


@dataclass(slots=True, eq=False)
class Lease:
    """What one running request holds. Only the cache writes to it.

    `checkpoints`: positions (tokens, rising, > hit) where the driver must commit a state; those
    up to the prompt's end come due in prefill, later ones in decode.
    `num_tokens`: tokens for which the request has KV now, shared ones included.
    `num_copied_bytes`: bytes of state copied for it (copy-on-write on a hit, checkpoints saved).
    `handle` is the cache's own.
    """

    request: Request
    num_match_tokens: int
    num_hit_tokens: int
    checkpoints: tuple[int, ...] = ()
    num_tokens: int = 0
    num_committed_tokens: int = 0
    num_evicted_tokens: int = 0
    num_evicted_states: int = 0
    num_checkpoints: int = 0
    num_skipped_checkpoints: int = 0
    num_copied_bytes: int = 0
    handle: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class CacheUsage:
    """Bytes in use now and at the peak, running requests' private bytes included."""

    kv_bytes: int
    state_bytes: int
    peak_kv_bytes: int
    peak_state_bytes: int


class PrefixCache(Protocol):
    """A prefix cache for one model on one GPU (or one tensor-parallel rank)."""

    def lookup(self, request: Request) -> Match:
        """Longest resident prefix and deepest reusable position. Changes nothing."""
        ...

    def fits(self, request: Request) -> bool:
        """Whether the request could run in this cache were it empty. Changes nothing."""
        ...

    def acquire(
        self, request: Request, match: Match, num_tokens: int | None = None
    ) -> Lease | None:
        """Lock the matched prefix, copy its state, take memory for the whole prompt.

        num_tokens: memory for so many tokens instead, for a request that is computed again
        together with what it had generated.

        Evicts what is needed. None when that cannot be had while others run; nothing has
        changed then. `match` must come from a lookup with no change in between.
        """
        ...

    def commit(self, lease: Lease, num_tokens: int) -> None:
        """Make the first `num_tokens` reusable; save a state there if that position is planned.

        A checkpoint for which no slot can be had is skipped and counted, never an error.
        """
        ...

    def grow(self, lease: Lease, num_tokens: int) -> bool:
        """Have KV memory for `num_tokens` tokens in all. False: no memory, nothing has changed."""
        ...

    def release(self, lease: Lease, *, finished: bool) -> None:
        """Give back all that the lease holds.

        finished: the output is complete, and what the policy wants of it is committed first.
        Not finished (preempted): nothing new is committed.
        """
        ...

    def usage(self) -> CacheUsage: ...

    def check(self) -> None:
        """Raise AssertionError if a law is broken: sums over owners for bytes, slots and locks."""
        ...
