"""How many tokens of prefill one state copy is worth."""

from hybridsim.cost.base import CostModel, PrefillChunk


def break_even_tokens(
    cost: CostModel,
    state_bytes: int,
    num_new_tokens: int,
    num_prefix_tokens: int,
    limit: int = 1024,
) -> int | None:
    """The gap from which on prefilling it again costs more than copying a state.

    A request needs `num_new_tokens` after a prefix of `num_prefix_tokens`. With a checkpoint at the
    prefix's end the step also copies one state (copy-on-write); with one that lies `gap` tokens
    earlier and needs no copy, the step prefills `gap` tokens more. Measured costs are bumpy, so
    every gap from the answer up to `limit` costs more; None if that at `limit` does not.
    """
    copied_s = cost.step_s([PrefillChunk(num_new_tokens, num_prefix_tokens)], 0, 0, state_bytes)
    limit = min(limit, num_prefix_tokens)
    for gap in range(limit, 0, -1):
        longer = PrefillChunk(num_new_tokens + gap, num_prefix_tokens - gap)
        if cost.step_s([longer], 0, 0) <= copied_s:
            return None if gap == limit else gap + 1
    return 1
