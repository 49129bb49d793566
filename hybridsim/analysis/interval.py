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

from hybridsim.analysis.passes import (
    NEVER,
    Passes,
    PathTree,
    all_passes,
    cached_trie,
    page_tree,
)
from hybridsim.analysis.reward import FloatArray, Reward
from hybridsim.analysis.room import BoolArray, Load
from hybridsim.analysis.windows import Windows
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
    states_apart: forced KV, but the running state lives in memory of its own.
    longest_tokens: of longer requests no more than the prompt may be computed.
    """

    kv_bytes_per_token: int
    state_bytes: int
    page_tokens: int = 1
    outputs: bool = True
    last_output: bool = False
    caps_last_token: bool = True
    insertion: Insertion = "forced"
    states_apart: bool = False
    longest_tokens: int | None = None

    @property
    def num_running_states(self) -> int:
        """States that a running request takes from the memory of those that are kept."""
        return int(self.insertion == "forced" and not self.states_apart)


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """The requests that a bound speaks of, in the order in which they start.

    Per request, `[num_requests]`: `earns`: it counts in the rate; `takes_room`: it runs to its end.
    measured_tokens: prompt tokens of all requests that count in the rate, those that were never
    served included: the denominator.
    """

    requests: Sequence[Request]
    earns: BoolArray
    takes_room: BoolArray
    measured_tokens: Int64Array

    @staticmethod
    def everyone(requests: Sequence[Request], num_warmup: int = 0) -> "Served":
        """All requests of a trace, of which the first `num_warmup` count for nothing."""
        return Served.chosen(requests, range(len(requests)), num_warmup)

    @staticmethod
    def chosen(
        requests: Sequence[Request],
        order: Sequence[int],
        num_warmup: int = 0,
        given_up: frozenset[int] = frozenset(),
    ) -> "Served":
        """Requests by index in the order of their start; `given_up` ran but were never served."""
        tokens = np.array([r.num_prompt_tokens for r in requests[num_warmup:]], dtype=np.int64)
        is_served = np.array([index not in given_up for index in order], dtype=bool)
        return Served(
            [requests[index] for index in order],
            (np.array(order, dtype=np.int64) >= num_warmup) & is_served,
            is_served,
            tokens,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Runs that can be reused, in request order and from the top down; no capacities yet.

    Per run, `[num_runs]`: `request`; `previous`: the request after whose start the run has been
    held for it (itself: it is held by others that run); `kv_bytes`: of its pages;
    `begin_tokens`, `end_tokens`: where it begins and ends; `unit_tokens`: tokens a page (of
    `unit_bytes`) has in it. At given prices its end is the only position in it worth resuming at,
    since rewards are convex and the price of memory is the same all along it; `reward` is that of
    its end, by the rule `reward_of`. `windows`: what is held in the place of states, if not None.
    `last_pass`: index of its deepest pass in `passes`.
    `load`: what running requests hold. `first`, `[num_requests + 1]`: where a request's runs begin.
    `left`, `[num_requests]`: the last request to start before this one was done.
    """

    rules: BoundRules
    first: Int64Array
    request: Int64Array
    previous: Int64Array
    kv_bytes: Int64Array
    begin_tokens: Int64Array
    end_tokens: Int64Array
    unit_tokens: Int64Array
    unit_bytes: int
    reward: FloatArray
    reward_of: Reward
    load: Load
    left: Int64Array
    total_reward: float
    last_pass: Int64Array
    passes: Passes
    windows: Windows | None = None

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
    """The problem of a trace served request by request.

    Requests before `num_warmup` earn nothing but use memory. O(passes log passes).
    """
    return problem_in_turn(Served.everyone(requests, num_warmup), rules, reward)


def problem_in_turn(served: Served, rules: BoundRules, reward: Reward | None = None) -> Problem:
    """The same for some of the requests; what the others would have left is not there."""
    tree = bound_tree(served.requests, rules)
    own_kv = np.where(served.takes_room, _own_kv_bytes(served.requests, rules), 0)
    states = rules.num_running_states * served.takes_room.astype(np.int64)
    if rules.insertion == "bypass":
        own_kv = np.zeros_like(own_kv)
    unit_bytes = rules.page_tokens * rules.kv_bytes_per_token
    load = Load.in_turn(own_kv, states)
    return problem_of(served, rules, tree, all_passes(tree), load, unit_bytes, reward)


def bound_tree(requests: Sequence[Request], rules: BoundRules) -> PathTree:
    """What the requests share, in pages."""
    if rules.last_output and rules.outputs:
        trie = build_trie(requests, outputs=True)
    else:
        trie = cached_trie(requests, outputs=rules.outputs)
    return page_tree(trie, requests, rules.page_tokens, caps_last_token=rules.caps_last_token)


def problem_of(
    served: Served,
    rules: BoundRules,
    tree: PathTree,
    passes: Passes,
    load: Load,
    unit_bytes: int,
    reward: Reward | None = None,
    left: Int64Array | None = None,
) -> Problem:
    """Cut passes into runs. A run's units have one size, so that memory a token is even along it.

    left: None where every request is done before the next one starts.
    total_reward: what resuming at every prompt's end would earn, the denominator of rates.
    """
    reward = reward or Reward.tokens()
    unit_tokens = tree.unit_tokens[passes.node]
    starts = passes.run_starts(2 * unit_tokens + passes.in_prompt)
    ends = np.append(starts, len(passes.node))[1:] - 1
    request = passes.request[starts]
    begin = tree.start[passes.node[starts]]
    stop = np.minimum(tree.end[passes.node[ends]], tree.limit[request])
    kept = (passes.previous[starts] != NEVER) & passes.in_prompt[starts] & (stop > begin)
    request, units = request[kept], (stop - begin)[kept]
    begin_tokens = _tokens_above(tree, passes)[starts][kept]
    end_tokens = begin_tokens + units * unit_tokens[starts][kept]
    return Problem(
        rules=rules,
        first=np.searchsorted(request, np.arange(len(served.requests) + 1)),
        request=request,
        previous=passes.previous[starts][kept],
        kv_bytes=units * unit_bytes,
        begin_tokens=begin_tokens,
        end_tokens=end_tokens,
        unit_tokens=unit_tokens[starts][kept],
        unit_bytes=unit_bytes,
        reward=np.where(served.earns[request], reward.of(end_tokens), 0.0),
        reward_of=reward,
        load=load,
        left=np.arange(len(served.requests)) if left is None else left,
        total_reward=float(reward.of(served.measured_tokens).sum()),
        last_pass=ends[kept],
        passes=passes,
    )


def _tokens_above(tree: PathTree, passes: Passes) -> Int64Array:
    """Tokens from a request's start to the node of each pass, `[num_passes]`."""
    tokens = ((tree.end - tree.start) * tree.unit_tokens)[passes.node]
    before = np.concatenate([[0], np.cumsum(tokens)])
    return before[:-1] - before[passes.first[passes.request]]


def _own_kv_bytes(requests: Sequence[Request], rules: BoundRules) -> Int64Array:
    """KV of all tokens that a request computes, in whole pages."""
    skipped = 0 if rules.last_output else 1
    prompts = np.array([r.num_prompt_tokens for r in requests], dtype=np.int64)
    outputs = np.array([r.num_output_tokens for r in requests], dtype=np.int64)
    longest = prompts.max(initial=0) + outputs.max(initial=0)
    if rules.longest_tokens is not None:
        longest = rules.longest_tokens
    is_cut = prompts + outputs > longest
    tokens = prompts + np.where(is_cut, 0, np.maximum(outputs - skipped, 0))
    pages = -(-tokens // rules.page_tokens)
    return pages * rules.page_tokens * rules.kv_bytes_per_token
