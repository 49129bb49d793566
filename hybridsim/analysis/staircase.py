"""From the positions at which a request may resume to steps of a surface over two pools."""

import numpy as np

from hybridsim.analysis.steps import Steps
from hybridsim.request import Int64Array


def staircase(
    request: Int64Array, kv_bytes: Int64Array, slots: Int64Array, tokens: Int64Array
) -> tuple[Steps, Steps]:
    """Signed steps whose sum is the deepest position that both pools allow.

    All `[num_positions]`, request by request, from the top down: what a position needs of each pool
    and how many tokens it saves. KV needs never fall on the way down, slots may: then a position
    that needs more slots than a deeper one counts only where the KV of the deeper one is not held,
    and a step of its tokens is taken back there. At most two steps a position; O(positions).
    """
    kv_at: list[int] = []
    slots_at: list[int] = []
    gains: list[int] = []
    profile: list[tuple[int, int, int]] = []  # (slots, tokens there, tokens more than below)
    current = -1
    rows = (request.tolist(), kv_bytes.tolist(), slots.tolist(), tokens.tolist())
    for owner, kv, count, saved in zip(*rows, strict=True):
        if owner != current:
            profile, current = [], owner
        while profile and profile[-1][0] >= count:
            above, _, gain = profile.pop()
            kv_at.append(kv)
            slots_at.append(above)
            gains.append(-gain)
        gain = saved - (profile[-1][1] if profile else 0)
        profile.append((count, saved, gain))
        kv_at.append(kv)
        slots_at.append(count)
        gains.append(gain)
    worth = np.array(gains, dtype=np.int64)
    points = (np.array(kv_at, dtype=np.int64), np.array(slots_at, dtype=np.int64))
    return Steps.points(points[0], worth), Steps.points(points[1], worth)
