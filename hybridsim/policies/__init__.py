"""The two registries of policies. Adding one = one file, one line here."""

from collections.abc import Callable, Mapping
from typing import Any

from hybridsim.policies.base import CheckpointPolicy, EvictionPolicy
from hybridsim.policies.checkpoint.branch import Branch
from hybridsim.policies.checkpoint.fixed import AllBlocks, Every, NoCheckpoints, PromptEnd, TurnEnd
from hybridsim.policies.checkpoint.union import Union
from hybridsim.policies.eviction.fifo import FIFO
from hybridsim.policies.eviction.lfu import LFU
from hybridsim.policies.eviction.lru import LRU
from hybridsim.policies.make import make

CHECKPOINT: Mapping[str, Callable[..., CheckpointPolicy]] = {
    "none": NoCheckpoints,
    "prompt_end": PromptEnd,
    "turn_end": TurnEnd,
    "every": Every,
    "all_blocks": AllBlocks,
    "branch": Branch,
}

EVICTION: Mapping[str, Callable[..., EvictionPolicy]] = {
    "lru": LRU,
    "lfu": LFU,
    "fifo": FIFO,
}


def make_checkpoint(value: Any, place: str = "cache.checkpoint") -> CheckpointPolicy:
    """A policy from `name`, `name+name` or `{name: ..., parameters}`; UserError names `place`."""
    if isinstance(value, str) and "+" in value:
        return Union(tuple(make(part, CHECKPOINT, place) for part in value.split("+")))
    return make(value, CHECKPOINT, place)


def make_eviction(value: Any, place: str = "cache.eviction") -> EvictionPolicy:
    """A policy from `name` or `{name: ..., parameters}`; UserError names `place`."""
    return make(value, EVICTION, place)
