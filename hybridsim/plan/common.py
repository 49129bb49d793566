"""What the planners of all engines share: surfaces by policy, gains by replay, search by memory."""

from collections.abc import Callable

from hybridsim.analysis.curve import CacheRules, Refresh, lru_surface
from hybridsim.analysis.passes import cached_trie
from hybridsim.analysis.planner import (
    GIB,
    Pools,
    Split,
    SplitRules,
    best_split,
    fraction_of,
    rate_at,
)
from hybridsim.analysis.steps import Surface
from hybridsim.errors import UserError
from hybridsim.plan.bench import Bench, Settings, Trial
from hybridsim.plan.result import Gain, ReplayedTarget
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.request import Request
from hybridsim.units import format_bytes

_MOST_BYTES = 2**46
_CLOSE = 1.04
_ALMOST = 1e-5  # a hit rate's part that tidy numbers may cost
REFRESH: Refresh = "path"  # as the research cache with `lru`, whose replays judge it
_SPLIT = ("cache.memory", "cache.state_fraction", "engine.max_mamba_cache_size")


def surfaces(
    requests: list[Request],
    rules: CacheRules,
    policies: dict[str, CheckpointPolicy],
    num_warmup: int = 0,
) -> dict[str, Surface]:
    """A surface for each policy that one pass can tell; those that look at the cache are left."""
    trie = cached_trie(requests, outputs=rules.outputs)
    found = {}
    for label, policy in policies.items():
        try:
            found[label] = lru_surface(
                requests, rules, policy, num_warmup=num_warmup, refresh=REFRESH, trie=trie
            )
        except UserError:
            continue
    return found


def needed_split(surface: Surface, memory_bytes: int, rules: SplitRules) -> Split:
    """The best split; UserError for a memory that holds no page and state."""
    split = best_split(surface, memory_bytes, rules)
    if split is None:
        raise too_small(memory_bytes, rules)
    return split


def too_small(memory_bytes: int, rules: SplitRules) -> UserError:
    least = rules.page_bytes + rules.state_bytes
    return UserError(
        "--memory",
        f"{format_bytes(memory_bytes)} ({memory_bytes} bytes) does not hold one page and one "
        f"state; allowed: at least {format_bytes(least)} ({least} bytes)",
    )


def tidy_fraction(surface: Surface, split: Split, rules: SplitRules) -> float:
    """The best split's fraction with the fewest digits that cost nothing worth naming."""
    memory = split.memory_bytes
    exact = fraction_of(memory, split.pools.state_slots * rules.state_bytes)
    for digits in (2, 3, 4):
        fraction = round(exact, digits)
        slots = int(memory * fraction) // rules.state_bytes
        if 0 < fraction < 1 and slots in rules.slots(memory, rules.longest):
            pools = rules.pools(memory, slots)
            if rate_at(surface, pools) >= split.token_hit_rate - _ALMOST:
                return fraction
    return exact


def gains_by_replay(
    bench: Bench, best: Trial, memory_bytes: int, grown: Callable[[int], Settings]
) -> list[Gain]:
    """One GiB more: split as before, all to KV, all to states; the last two for split pools only.

    grown: settings for a larger memory, split as before.
    """
    trials = {"split as before": bench.attempt(grown(memory_bytes + GIB))}
    kv_tokens, slots = best.capacity.kv_tokens, best.capacity.state_slots
    if kv_tokens is not None and slots is not None:
        model = bench.model
        more_tokens, more_slots = GIB // model.kv_bytes_per_token, GIB // model.state_bytes
        more_kv = with_counts(best.settings, kv_tokens + more_tokens, slots)
        more_states = with_counts(best.settings, kv_tokens, slots + more_slots)
        trials["all to KV"] = bench.attempt(more_kv)
        trials["all to states"] = bench.attempt(more_states)
    return [
        Gain(where, 100 * (trial.token_hit_rate - best.token_hit_rate))
        for where, trial in trials.items()
        if trial is not None
    ]


def reach_by_replay(
    bench: Bench, target: float, label: str, start_bytes: int, grown: Callable[[int], Settings]
) -> ReplayedTarget | None:
    """A memory that reaches the target and one at most 4 % smaller that misses it.

    By doubling, then by halving the ratio. None if no memory does. grown: settings for a memory.
    """

    def rate(memory_bytes: int) -> float:
        trial = bench.attempt(grown(memory_bytes))
        return trial.token_hit_rate if trial is not None else 0.0

    high = start_bytes
    while rate(high) < target:
        trial = bench.attempt(grown(high))
        if high > _MOST_BYTES or (trial is not None and is_unpressed(trial)):
            return None
        high *= 2
    low = high // 2
    while rate(low) >= target:
        low, high = low // 2, low
    while high > _CLOSE * low:
        middle = int((low * high) ** 0.5)
        low, high = (low, middle) if rate(middle) >= target else (middle, high)
    return ReplayedTarget(label, high, low, rate(high))


def is_unpressed(trial: Trial) -> bool:
    """Whether nothing was evicted, so that more memory cannot help."""
    return trial.num_evicted == 0 and not trial.num_refused


def with_counts(settings: Settings, kv_tokens: int, state_slots: int) -> Settings:
    """The same with pools of given sizes instead of a memory that is split."""
    rest = {key: value for key, value in settings.items() if key not in _SPLIT}
    return {**rest, "cache.kv_tokens": kv_tokens, "cache.state_slots": state_slots}


def pools_of(trial: Trial, kv_bytes_per_token: int) -> Pools:
    """The pools that a trial ran with."""
    kv_tokens, slots = trial.capacity.kv_tokens, trial.capacity.state_slots
    assert kv_tokens is not None
    assert slots is not None
    return Pools(kv_tokens * kv_bytes_per_token, slots)
