"""The LRU hit rate at every capacity, from one pass over the trace.

One pool of bytes, or a pool of KV and a pool of states (layout split). Every request touches the KV
of its whole path, the root most recent; what does not fit goes from the least recent end, page by
page and state by state, a state before the KV that it ends. The positions that a request asks for
depend on the request alone. `refresh` says which states a request touches:

- `path`, as the research cache's `lru` does: those that it finds on its path, and those that it
  asks for behind its hit. Exact at every capacity of a trace on which a larger cache always holds
  all that a smaller one holds. That can fail, since a larger cache finds and so touches more, and
  saves nothing on the way to a deeper hit (`sqrt`, `balanced`: their steps grow with the prompt);
  then a state counts from the least capacity on at which it is there.
- `named`: only those that it asks for itself, so that a hit alone does not make a state young.
  Exact at every capacity.
- `again`, as in the textbook: all that were ever asked for on its path; those that were evicted are
  kept again, for nothing. Exact at every capacity. Far too low where prompts grow turn by turn.

Where requests ask for every state on their path (`all_blocks`, mostly `every`), and where there are
no states, the three are one. Of the running request a curve knows at most the slot of its state
(`CacheRules.running_states`). What no mode knows: nothing is pinned, no pages for output that
nobody can find again, requests that cannot fit are served, the two pools do not look at each
other, and a path counts at once, though what a request generates is found only at its end (which
matters where others saved states behind the same output). docs/analysis.md says how far that is
from a replay; `hybridsim.analysis.lockstep` and `hybridsim.sim.grid` replay instead.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from hybridsim.analysis.found import found_distances
from hybridsim.analysis.passes import (
    NEVER,
    Passes,
    PathTree,
    all_passes,
    cached_trie,
    page_tree,
)
from hybridsim.analysis.placement import Placement, place_states
from hybridsim.analysis.stack import named_distances, stack_distances
from hybridsim.analysis.staircase import staircase
from hybridsim.analysis.steps import Curve, Steps, Surface
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.request import Int64Array, Request
from hybridsim.trie import Trie

Refresh = Literal["path", "named", "again"]
REFRESHES: tuple[Refresh, ...] = get_args(Refresh)
_DISTANCES: Mapping[str, Callable[[Passes, Int64Array, int, np.ndarray], Int64Array]] = {
    "path": found_distances,
    "named": named_distances,
}


@dataclass(frozen=True, slots=True)
class CacheRules:
    """What a one-pass analysis needs to know of a cache.

    page_tokens: KV allocation unit. kv_bytes_per_token, state_bytes: of all layers; a state of 0
    bytes means attention only. outputs: generated tokens of known content are kept.
    caps_last_token: a hit is at most n - 1 tokens. running_states: states that a running request
    takes room for and gives back at its end; none where every request ends on a checkpoint, since
    it then leaves its own. One-pass curves count it; replays know better.
    """

    kv_bytes_per_token: int
    state_bytes: int = 0
    page_tokens: int = 1
    outputs: bool = True
    caps_last_token: bool = True
    running_states: int = 0


def lru_curve(
    requests: Sequence[Request],
    rules: CacheRules,
    policy: CheckpointPolicy,
    *,
    num_warmup: int = 0,
    refresh: Refresh = "path",
    trie: Trie | None = None,
) -> Curve:
    """Hit tokens over bytes of one pool that KV and states share.

    num_warmup: requests, from the first, that fill the cache and are left out of the rate.
    refresh: which states a request touches, see above. trie: of
    `cached_trie(requests, outputs=rules.outputs)`, if it is there already.
    UserError for a policy that looks at what is resident.
    O(passes + runs log requests) for `again`, O(passes log requests) for `named`; `path` looks at
    all states younger than each on its path besides.
    """
    placement, passes, running = _prepared(requests, rules, policy, trie)
    page_bytes, state_bytes = rules.kv_bytes_per_token * rules.page_tokens, rules.state_bytes
    wanted = (passes.request >= num_warmup) & (passes.previous != NEVER) & passes.in_prompt
    num_prompt_tokens = int(placement.tree.num_prompt_tokens[num_warmup:].sum())
    if not state_bytes:
        kv, _ = _weights(placement, passes, page_bytes, 0)
        distances = stack_distances(passes, kv, kv)
        steps = _kv_steps(placement.tree, passes, distances, page_bytes, wanted)
        return Curve(steps, num_prompt_tokens)
    distances = _state_distances(placement, passes, page_bytes, state_bytes, refresh)
    if placement.stride is None:
        chosen, tokens = _state_passes(placement, passes, distances, wanted)
        steps = Steps.points(distances[chosen], tokens)
    else:
        steps = _stride_steps(placement, passes, distances, page_bytes, state_bytes, wanted)
    return Curve(steps.moved(running * state_bytes), num_prompt_tokens)


def lru_surface(
    requests: Sequence[Request],
    rules: CacheRules,
    policy: CheckpointPolicy,
    *,
    num_warmup: int = 0,
    refresh: Refresh = "path",
    trie: Trie | None = None,
) -> Surface:
    """Hit tokens over (bytes of the KV pool, slots of the state pool); arguments as `lru_curve`."""
    placement, passes, running = _prepared(requests, rules, policy, trie)
    page_bytes = rules.kv_bytes_per_token * rules.page_tokens
    kv, _ = _weights(placement, passes, page_bytes, 0)
    kv_bytes = stack_distances(passes, kv, kv)
    slots = _state_distances(placement, passes, 0, 1, refresh)
    wanted = (passes.request >= num_warmup) & (passes.previous != NEVER) & passes.in_prompt
    num_prompt_tokens = int(placement.tree.num_prompt_tokens[num_warmup:].sum())
    if placement.stride is not None:
        kv_steps = _stride_steps(placement, passes, kv_bytes, page_bytes, 0, wanted)
        slot_steps = _stride_steps(placement, passes, slots, 0, 1, wanted)
        return Surface(kv_steps, slot_steps.moved(running), num_prompt_tokens)
    chosen, tokens = _usable(placement, passes, wanted)
    kv_steps, slot_steps = staircase(
        passes.request[chosen], kv_bytes[chosen], slots[chosen] + running, tokens
    )
    return Surface(kv_steps, slot_steps, num_prompt_tokens)


def _prepared(
    requests: Sequence[Request], rules: CacheRules, policy: CheckpointPolicy, trie: Trie | None
) -> tuple[Placement, Passes, int]:
    """States on the trie, its passes, and the states that a running request takes beside."""
    trie = trie or cached_trie(requests, outputs=rules.outputs)
    tree = page_tree(trie, requests, rules.page_tokens, caps_last_token=rules.caps_last_token)
    if rules.state_bytes:
        placement = place_states(requests, tree, rules.page_tokens, policy, outputs=rules.outputs)
    else:
        placement = Placement.empty(tree)
    running = 0 if placement.is_left_by_all(requests, rules.page_tokens) else rules.running_states
    return placement, all_passes(placement.tree), running


def _state_distances(
    placement: Placement, passes: Passes, unit_bytes: int, state_bytes: int, refresh: Refresh
) -> Int64Array:
    """What a pool must hold for the state at the end of each pass's node to be there."""
    if placement.stride is not None or refresh == "again":
        return stack_distances(passes, *_weights(placement, passes, unit_bytes, state_bytes))
    kv, _ = _weights(placement, passes, unit_bytes, 0)
    return _DISTANCES[refresh](passes, kv, state_bytes, placement.named_passes(passes))


def _weights(
    placement: Placement, passes: Passes, unit_bytes: int, state_bytes: int
) -> tuple[Int64Array, Int64Array]:
    """Bytes that each passed node holds before and after the pass."""
    tree, node = placement.tree, passes.node
    kv = (tree.end - tree.start) * unit_bytes
    if placement.stride is not None:
        kv = kv + state_bytes * (tree.end // placement.stride - tree.start // placement.stride)
        return kv[node], kv[node]
    named_by = placement.named_by[node]
    before = kv[node] + state_bytes * (named_by < passes.request)
    return before, kv[node] + state_bytes * (named_by <= passes.request)


def _state_passes(
    placement: Placement, passes: Passes, distances: Int64Array, wanted: np.ndarray
) -> tuple[Int64Array, Int64Array]:
    """Passes at whose end a state may be reused, and by how many tokens it beats the one above.

    A state that needs as much memory as a deeper one of the same request is never of use.
    """
    chosen, tokens = _usable(placement, passes, wanted)
    rises = _rises(passes.request[chosen], distances[chosen])
    chosen, tokens = chosen[rises], tokens[rises]
    is_first = np.ones(len(chosen), dtype=bool)
    is_first[1:] = passes.request[chosen][1:] != passes.request[chosen][:-1]
    return chosen, tokens - np.where(is_first, 0, np.concatenate([[0], tokens[:-1]]))


def _usable(
    placement: Placement, passes: Passes, wanted: np.ndarray
) -> tuple[Int64Array, Int64Array]:
    """Passes at whose end there has been a state, and how many tokens it saves."""
    tree = placement.tree
    end = tree.end[passes.node]
    named = placement.named_by[passes.node] < passes.request
    chosen = np.flatnonzero(wanted & named & (end <= tree.limit[passes.request]))
    return chosen, (end * tree.unit_tokens[passes.node])[chosen]


def _rises(request: Int64Array, distances: Int64Array) -> np.ndarray:
    """Whether each entry is smaller than all later ones of its request (equal ones: the last)."""
    if not len(distances):
        return np.zeros(0, dtype=bool)
    # From the end on, every request lies below all that were seen, so one running minimum will do.
    order = np.cumsum(np.diff(request[::-1], prepend=request[-1]) != 0)
    keys = distances[::-1] - order * (int(distances.max()) + 1)
    least = np.minimum.accumulate(keys)
    smaller = np.ones(len(keys), dtype=bool)
    smaller[1:] = keys[1:] < least[:-1]
    return smaller[::-1]


def _kv_steps(
    tree: PathTree, passes: Passes, distances: Int64Array, unit_bytes: int, wanted: np.ndarray
) -> Steps:
    """One step a unit, of as many tokens as it has; the units of a node are a ramp."""
    node = passes.node
    start = tree.start[node]
    count = np.minimum(tree.end[node], tree.limit[passes.request]) - start
    chosen = wanted & (count > 0)
    first = distances - (tree.end[node] - start - 1) * unit_bytes
    tokens = tree.unit_tokens[node]
    return Steps.ramps(first[chosen], unit_bytes, count[chosen], tokens[chosen])


def _stride_steps(
    placement: Placement,
    passes: Passes,
    distances: Int64Array,
    unit_bytes: int,
    state_bytes: int,
    wanted: np.ndarray,
) -> Steps:
    """One step a state; the states inside a node are a ramp. distances: of whole nodes."""
    assert placement.stride is not None
    tree, node, stride = placement.tree, passes.node, placement.stride
    starts = distances - _weights(placement, passes, unit_bytes, state_bytes)[0]
    stride_bytes = stride * unit_bytes + state_bytes
    above = tree.start[node] // stride
    count = np.minimum(tree.end[node], tree.limit[passes.request]) // stride - above
    chosen = wanted & (count > 0)
    first = starts + stride_bytes - (tree.start[node] - above * stride) * unit_bytes
    tokens = stride * tree.unit_tokens[node]
    return Steps.ramps(first[chosen], stride_bytes, count[chosen], tokens[chosen])
