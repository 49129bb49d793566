"""What no policy passes at some sizes of a memory, to be drawn above curves of LRU."""

from collections.abc import Sequence

from hybridsim.analysis.bound import bracket
from hybridsim.analysis.curve import CacheRules
from hybridsim.analysis.interval import BoundRules, interval_problem
from hybridsim.request import Request

_NUM_STEPS = 200  # within 0.3 points of what 800 steps give; drawn, not tabled


def pool_bounds(
    requests: Sequence[Request],
    rules: CacheRules,
    memories_bytes: Sequence[int],
    *,
    num_warmup: int = 0,
) -> dict[int, float]:
    """Memory in bytes -> the most that any policy hits in it, as one pool or split anyhow.

    As in one pass, running requests take no room. Rates rise with memory. O(steps x runs) a size,
    far less where all that can be reused fits.
    """
    bypass = BoundRules(
        rules.kv_bytes_per_token,
        rules.state_bytes,
        rules.page_tokens,
        outputs=rules.outputs,
        caps_last_token=rules.caps_last_token,
        insertion="bypass",
    )
    problem = interval_problem(requests, bypass, num_warmup=num_warmup)
    found: dict[int, float] = {}
    least = 1.0
    for memory_bytes in sorted(memories_bytes, reverse=True):
        # What bounds a larger memory bounds this one.
        upper = bracket(problem, memory_bytes, num_steps=_NUM_STEPS, makes_plans=False).upper
        least = found[memory_bytes] = min(least, upper)
    return found
