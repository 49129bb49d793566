"""The best split of a memory into KV and states, read off one exact surface. It replays nothing.

A step of the surface counts where both pools reach it. With `s` of a memory's slots given to
states and the rest to KV, that is so for `slots <= s <= (memory - kv) // state_bytes`: an interval.
So the hits at *every* split of a memory are one running sum over the steps, and nothing is sampled.
Exact for the rules of `analysis.curve`; `hybridsim.plan` replays what those leave out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, nextafter

import numpy as np

from hybridsim.analysis.steps import Steps, Surface
from hybridsim.request import Int64Array, Request

GIB = 2**30
NEARLY = 0.001  # a tenth of a point: splits this close to the best count as equally good
_CHUNK_STEPS = 2**21


@dataclass(frozen=True, slots=True)
class Pools:
    """Sizes of a split pool: bytes of KV in whole pages, and state slots."""

    kv_bytes: int
    state_slots: int


@dataclass(frozen=True, slots=True)
class Split:
    """A memory and its best split.

    `least_slots`, `most_slots`: the slots around the best that come within `NEARLY` of it.
    `is_roomy`: the pools hold the longest request; if no split does, some requests are refused.
    """

    memory_bytes: int
    pools: Pools
    token_hit_rate: float
    least_slots: int
    most_slots: int
    is_roomy: bool


@dataclass(frozen=True, slots=True)
class Marginal:
    """Points (hundredths of the rate) gained by one GiB more: split anew, all KV, all states."""

    best_points: float
    kv_points: float
    state_points: float


@dataclass(frozen=True, slots=True)
class SplitRules:
    """What decides how memory becomes pools. `longest`: what the largest request must find free."""

    page_bytes: int
    state_bytes: int
    longest: Pools

    def pools(self, memory_bytes: int, state_slots: int) -> Pools:
        """All that the states leave goes to KV, in whole pages."""
        rest = memory_bytes - state_slots * self.state_bytes
        return Pools(rest // self.page_bytes * self.page_bytes, state_slots)

    def slots(self, memory_bytes: int, least: Pools) -> range:
        """Slot counts that leave at least as much."""
        most = (memory_bytes - least.kv_bytes) // self.state_bytes
        return range(least.state_slots, most + 1)


def longest_request(
    requests: list[Request], page_tokens: int, kv_bytes_per_token: int, state_bytes: int
) -> SplitRules:
    """The rules of a split pool in which the trace's longest request can run."""
    page_bytes = page_tokens * kv_bytes_per_token
    most_tokens = max(r.num_final_tokens for r in requests)
    longest = Pools(-(-most_tokens // page_tokens) * page_bytes, 1)
    return SplitRules(page_bytes, state_bytes, longest)


def hits_by_slots(surface: Surface, memory_bytes: int, state_bytes: int) -> Int64Array:
    """Tokens hit with 0, 1, .. `memory_bytes // state_bytes` slots, the rest of the memory KV.

    `[num_slots + 1]`. O(steps + slots).
    """
    most = memory_bytes // state_bytes
    change = np.zeros(most + 2, dtype=np.int64)
    for kv_bytes, slots, tokens in _single_steps(surface.kv, surface.slots):
        first = np.maximum(slots, 0)
        last = np.minimum((memory_bytes - kv_bytes) // state_bytes, most)
        counts = (first <= last) & (kv_bytes <= memory_bytes)
        np.add.at(change, first[counts], tokens[counts])
        np.add.at(change, last[counts] + 1, -tokens[counts])
    return np.asarray(change.cumsum()[:-1])


def best_split(surface: Surface, memory_bytes: int, rules: SplitRules) -> Split | None:
    """The split with most hits; of equally good ones the middle of the widest range.

    Only splits that hold the longest request are looked at, unless there is none. None if the
    memory does not even hold a page and a state.
    """
    slots = rules.slots(memory_bytes, rules.longest)
    is_roomy = len(slots) > 0
    if not is_roomy:
        slots = rules.slots(memory_bytes, Pools(rules.page_bytes, 1))
    if not len(slots):
        return None
    hits = hits_by_slots(surface, memory_bytes, rules.state_bytes)[slots.start : slots.stop]
    low, high = _widest(hits == hits.max())
    best = (low + high) // 2
    near = hits >= hits.max() - NEARLY * surface.num_prompt_tokens
    least, most = _range_around(near, best)
    return Split(
        memory_bytes,
        rules.pools(memory_bytes, slots[best]),
        float(hits[best] / max(surface.num_prompt_tokens, 1)),
        slots[least],
        slots[most],
        is_roomy,
    )


def memory_for(surface: Surface, target: float, rules: SplitRules) -> Split | None:
    """The least memory, to the byte, at which the best roomy split reaches the target hit rate.

    None if no memory does. O(steps x log memory).
    """
    needed = _needed_tokens(target, surface.num_prompt_tokens)
    low = rules.longest.kv_bytes + rules.longest.state_slots * rules.state_bytes - 1
    top_slots = max(surface.range_slots[1], rules.longest.state_slots)
    high = max(surface.range_kv_bytes[1], rules.longest.kv_bytes) + top_slots * rules.state_bytes
    if _most_hits(surface, high, rules) < needed:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _most_hits(surface, middle, rules) >= needed:
            high = middle
        else:
            low = middle
    return best_split(surface, high, rules)


def marginal(surface: Surface, split: Split, rules: SplitRules) -> Marginal:
    """What one GiB more is worth at a split."""
    pools = split.pools
    more = best_split(surface, split.memory_bytes + GIB, rules)
    assert more is not None
    here = rate_at(surface, pools)
    kv = rate_at(surface, Pools(pools.kv_bytes + GIB, pools.state_slots))
    states = rate_at(surface, Pools(pools.kv_bytes, pools.state_slots + GIB // rules.state_bytes))
    # Of two plans for the larger memory the old split with the GiB in one pool may be the better
    # one where the old split was not the best.
    best = max(more.token_hit_rate, kv, states)
    return Marginal(100 * (best - here), 100 * (kv - here), 100 * (states - here))


def rate_at(surface: Surface, pools: Pools) -> float:
    """The hit rate of one pair of pools."""
    return float(surface.token_hit_rate([pools.kv_bytes], [pools.state_slots])[0, 0])


def ceiling(surface: Surface) -> float:
    """The hit rate of unlimited memory."""
    return rate_at(surface, Pools(surface.range_kv_bytes[1], surface.range_slots[1]))


def fraction_of(memory_bytes: int, states_bytes: int) -> float:
    """The least `state_fraction` whose share of the memory, cut to bytes, holds the states."""
    fraction = states_bytes / memory_bytes
    while int(memory_bytes * fraction) < states_bytes:
        fraction = nextafter(fraction, 1.0)
    return fraction


def _needed_tokens(target: float, num_prompt_tokens: int) -> int:
    """The fewest hit tokens whose rate is at least the target, as floats compare."""
    needed = max(0, ceil(target * num_prompt_tokens) - 1)
    while needed / max(num_prompt_tokens, 1) < target:
        needed += 1
    return needed


def _most_hits(surface: Surface, memory_bytes: int, rules: SplitRules) -> int:
    slots = rules.slots(memory_bytes, rules.longest)
    hits = hits_by_slots(surface, memory_bytes, rules.state_bytes)[slots.start : slots.stop]
    return int(hits.max()) if len(hits) else -1


def _single_steps(kv: Steps, slots: Steps) -> Iterator[tuple[Int64Array, Int64Array, Int64Array]]:
    """(KV bytes, slots, tokens) of every step, some millions at a time."""
    ends = np.cumsum(kv.count)
    start = 0
    while start < len(ends):
        done = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + _CHUNK_STEPS, side="right")))
        count = kv.count[start:stop]
        nth = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        yield (
            np.repeat(kv.first[start:stop], count) + nth * np.repeat(kv.stride[start:stop], count),
            np.repeat(slots.first[start:stop], count)
            + nth * np.repeat(slots.stride[start:stop], count),
            np.repeat(kv.tokens[start:stop], count),
        )
        start = stop


def _widest(mask: np.ndarray) -> tuple[int, int]:
    """First and last index of the longest run of True (the first of equally long ones)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    starts, stops = edges[::2], edges[1::2]
    longest = int((stops - starts).argmax())
    return int(starts[longest]), int(stops[longest]) - 1


def _range_around(mask: np.ndarray, index: int) -> tuple[int, int]:
    """First and last index of the run of True that holds `index`."""
    before = np.flatnonzero(~mask[:index])
    after = np.flatnonzero(~mask[index:])
    first = int(before[-1]) + 1 if len(before) else 0
    last = index + int(after[0]) - 1 if len(after) else len(mask) - 1
    return first, last
