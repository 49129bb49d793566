"""The interval problem behind the ceiling: which memory a hit must have held, and since when.

Request t can resume at position p only if a state at p and the KV of all tokens before it were
held since the last request that passed them: any earlier copy could be made again there for free.
Between neighbouring requests the memory holds no more than its capacity. Nothing else is asked of
a policy, so what holds for this problem holds for every placement of states, every block size and
every eviction. What is left out, and makes the bound looser than the truth: a state that was
skipped by a deeper resume is not there to be held.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hybridsim.analysis.passes import NEVER, Passes, all_passes, cached_trie, page_tree
from hybridsim.analysis.reward import FloatArray, Reward
from hybridsim.request import Int64Array, Request
from hybridsim.trie import build_trie

Insertion = Literal["forced", "bypass"]


@dataclass(frozen=True, slots=True)
class BoundRules:
    """What is known of the caches that the bound speaks of.

    page_tokens: a hit is a multiple of it (1: valid for every block size). outputs: generated
    tokens may be kept; last_output: even the last one, which no engine feeds back but Marconi's
    simulator keeps. caps_last_token: a hit is at most n - 1 tokens.
    insertion: `forced`: a request that runs takes KV for all its tokens and one state from the
    same memory, so others must fit beside it; `bypass`: it runs elsewhere and may leave nothing.
    """

    kv_bytes_per_token: int
    state_bytes: int
    page_tokens: int = 1
    outputs: bool = True
    last_output: bool = False
    caps_last_token: bool = True
    insertion: Insertion = "forced"


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Runs that can be reused, in request order and from the top down; no capacities yet.

    Per run, `[num_runs]`: `request`; `previous`: the request that passed it last; `kv_bytes`: of
    its pages; `begin_tokens`, `end_tokens`: where it begins and ends. At given prices its end is
    the only position in it worth resuming at, since rewards are convex and the price of memory is
    the same all along it; `reward` is that of its end, by the rule `reward_of`. `last_pass`: index
    of its deepest pass in `passes`.
    Per request, `[num_requests]`: `own_kv_bytes`: what it takes while it runs (0: bypass).
    `first`, `[num_requests + 1]`: where its runs begin.
    """

    rules: BoundRules
    first: Int64Array
    request: Int64Array
    previous: Int64Array
    kv_bytes: Int64Array
    begin_tokens: Int64Array
    end_tokens: Int64Array
    reward: FloatArray
    reward_of: Reward
    own_kv_bytes: Int64Array
    num_prompt_tokens: Int64Array
    total_reward: float
    last_pass: Int64Array
    passes: Passes

    @property
    def num_requests(self) -> int:
        return len(self.first) - 1


def interval_problem(
    requests: Sequence[Request],
    rules: BoundRules,
    *,
    num_warmup: int = 0,
    reward: Reward | None = None,
) -> Problem:
    """The problem of a trace. Requests before `num_warmup` earn nothing but use memory.

    total_reward: what resuming at every prompt's end would earn, the denominator of rates.
    O(passes log passes).
    """
    reward = reward or Reward.tokens()
    if rules.last_output and rules.outputs:
        trie = build_trie(requests, outputs=True)
    else:
        trie = cached_trie(requests, outputs=rules.outputs)
    tree = page_tree(trie, requests, rules.page_tokens, caps_last_token=rules.caps_last_token)
    passes = all_passes(tree)
    starts = passes.run_starts(passes.in_prompt)
    ends = np.append(starts[1:], len(passes.node)) - 1
    request = passes.request[starts]
    begin = tree.start[passes.node[starts]]
    stop = np.minimum(tree.end[passes.node[ends]], tree.limit[request])
    kept = (passes.previous[starts] != NEVER) & passes.in_prompt[starts] & (stop > begin)
    request, units = request[kept], (stop - begin)[kept]
    end_tokens = stop[kept] * rules.page_tokens
    earned = np.where(request >= num_warmup, reward.of(end_tokens), 0.0)
    num_tokens = tree.num_prompt_tokens
    return Problem(
        rules=rules,
        first=np.searchsorted(request, np.arange(len(requests) + 1)),
        request=request,
        previous=passes.previous[starts][kept],
        kv_bytes=units * rules.page_tokens * rules.kv_bytes_per_token,
        begin_tokens=begin[kept] * rules.page_tokens,
        end_tokens=end_tokens,
        reward=earned,
        reward_of=reward,
        own_kv_bytes=_own_kv_bytes(requests, rules),
        num_prompt_tokens=num_tokens,
        total_reward=float(reward.of(num_tokens[num_warmup:]).sum()),
        last_pass=ends[kept],
        passes=passes,
    )


def _own_kv_bytes(requests: Sequence[Request], rules: BoundRules) -> Int64Array:
    """KV of all tokens that a request computes, in whole pages."""
    skipped = 0 if rules.last_output else 1
    tokens = np.array(
        [r.num_prompt_tokens + max(r.num_output_tokens - skipped, 0) for r in requests],
        dtype=np.int64,
    )
    pages = -(-tokens // rules.page_tokens)
    return pages * rules.page_tokens * rules.kv_bytes_per_token


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """Bytes that may be held over slots and over events, for one kind of memory.

    Slot s lies between request s and request s + 1, `[num_requests]` (the last one is never used).
    Event t is request t at work: intervals that begin before it and end behind it must leave room
    for it; a request that could never fit is refused and makes no room.
    """

    capacity_bytes: float
    events_bytes: FloatArray
    is_bound: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """KV and states have a room each (split) or share one (`states` is None)."""

    kv: Room
    states: Room | None = None


def rooms(
    problem: Problem, capacity_bytes: float, state_capacity_bytes: float | None = None
) -> Rooms:
    """Capacities for a problem: one shared pool, or KV and states apart."""
    own_kv, own_state = problem.own_kv_bytes, problem.rules.state_bytes
    forced = problem.rules.insertion == "forced"
    if state_capacity_bytes is None:
        return Rooms(_room(capacity_bytes, own_kv + own_state, forced))
    fits = (own_kv <= capacity_bytes) & (own_state <= state_capacity_bytes)
    own_states = np.full(problem.num_requests, own_state)
    return Rooms(
        _room(capacity_bytes, own_kv, forced, fits),
        _room(state_capacity_bytes, own_states, forced, fits),
    )


def _room(
    capacity_bytes: float, own_bytes: Int64Array, forced: bool, fits: np.ndarray | None = None
) -> Room:
    if fits is None:
        fits = own_bytes <= capacity_bytes
    is_bound = fits if forced else np.zeros(len(own_bytes), dtype=bool)
    return Room(capacity_bytes, np.where(is_bound, capacity_bytes - own_bytes, 0.0), is_bound)
