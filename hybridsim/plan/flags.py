"""SGLang's split formula, inverted: which flags give the pools that were planned."""

from dataclasses import dataclass, replace

from hybridsim.engines.sglang.options import SGLangOptions
from hybridsim.engines.sglang.sizing import Sizing, SizingInputs, size_pools
from hybridsim.errors import UserError

_MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class SGLangFlags:
    """Two ways to say the same: a number of states, or state bytes over KV bytes.

    `max_mamba_cache_size` (`--max-mamba-cache-size`) wins in the server when both are given.
    """

    max_mamba_cache_size: int
    mamba_full_memory_ratio: float
    sizing: Sizing


def sglang_flags(options: SGLangOptions, inputs: SizingInputs, state_slots: int) -> SGLangFlags:
    """Flags by which the server splits `inputs.memory_bytes` into that many slots and the rest KV.

    The server gives the states `memory * ratio / (1 + ratio)`, cuts that to whole slots and takes
    one away to pad batches with; it stays `state_slots` as long as the share is at least
    `state_slots + 1` slots and less than one slot more. The ratio returned has the fewest digits
    that lie inside. UserError for a count that leaves no KV. Not for speculative decoding.
    """
    if inputs.num_draft_tokens:
        raise UserError("engine.num_draft_tokens", "must be 0 for a planned split; allowed: 0")
    exact = size_pools(options, replace(inputs, max_states=state_slots))
    low = _ratio(inputs, state_slots + 1)
    high = _ratio(inputs, state_slots + 2)
    for digits in range(2, _MOST_DIGITS):
        ratio = round((low + high) / 2, digits)
        if low <= ratio < high:
            found = size_pools(options, replace(inputs, ratio=ratio, max_states=None))
            if found == exact:
                return SGLangFlags(state_slots, ratio, exact)
    raise AssertionError(f"no ratio between {low} and {high} gives {state_slots} slots")


def _ratio(inputs: SizingInputs, num_states: int) -> float:
    """State bytes over KV bytes where the states take so many slots."""
    states = num_states * inputs.state_bytes
    return states / max(inputs.memory_bytes - states, 1)
