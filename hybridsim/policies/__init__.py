"""The three registries of policies. Adding one = one file, one line here."""

from collections.abc import Callable, Mapping
from typing import Any

from hybridsim.policies.base import EvictionPolicy, Thinning
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.policies.checkpoint.branch import Branch
from hybridsim.policies.checkpoint.dp_optimal import DPOptimal
from hybridsim.policies.checkpoint.fixed import AllBlocks, Every, NoCheckpoints, PromptEnd, TurnEnd
from hybridsim.policies.checkpoint.marconi import MarconiAdmission
from hybridsim.policies.checkpoint.marked import Marked
from hybridsim.policies.checkpoint.retention import Retention
from hybridsim.policies.checkpoint.spaced import Balanced, Log, Sqrt
from hybridsim.policies.checkpoint.union import Union
from hybridsim.policies.eviction.belady import Belady
from hybridsim.policies.eviction.coverage import Coverage
from hybridsim.policies.eviction.fifo import FIFO
from hybridsim.policies.eviction.flop_aware import FlopAware
from hybridsim.policies.eviction.gdsf import GDSF
from hybridsim.policies.eviction.hits_per_token import HitsPerToken
from hybridsim.policies.eviction.lfu import LFU
from hybridsim.policies.eviction.lhd import LHD
from hybridsim.policies.eviction.lru import LRU
from hybridsim.policies.eviction.lru_k import LRUK
from hybridsim.policies.eviction.pgdsf import PGDSF
from hybridsim.policies.eviction.random_leaf import RandomLeaf
from hybridsim.policies.eviction.s3fifo import S3FIFO
from hybridsim.policies.eviction.seglen import SegLen
from hybridsim.policies.eviction.session_end import SessionEnd
from hybridsim.policies.eviction.slru import SLRU
from hybridsim.policies.eviction.tlru import TailOptimisedLRU
from hybridsim.policies.make import make
from hybridsim.policies.thinning.fifo_cap import FifoCap
from hybridsim.policies.thinning.path_cap import PathCap
from hybridsim.policies.thinning.spacing import CoverageCap, VarianceCap

CHECKPOINT: Mapping[str, Callable[..., CheckpointPolicy]] = {
    "none": NoCheckpoints,
    "prompt_end": PromptEnd,
    "turn_end": TurnEnd,
    "every": Every,
    "all_blocks": AllBlocks,
    "branch": Branch,
    "marconi": MarconiAdmission,
    "retention": Retention,
    "marked": Marked,
    "balanced": Balanced,
    "sqrt": Sqrt,
    "log": Log,
    "dp_optimal": DPOptimal,
}

EVICTION: Mapping[str, Callable[..., EvictionPolicy]] = {
    "lru": LRU,
    "lfu": LFU,
    "fifo": FIFO,
    "slru": SLRU,
    "lru_k": LRUK,
    "gdsf": GDSF,
    "pgdsf": PGDSF,
    "s3fifo": S3FIFO,
    "lhd": LHD,
    "flop_aware": FlopAware,
    "seglen": SegLen,
    "coverage": Coverage,
    "hits_per_token": HitsPerToken,
    "tlru": TailOptimisedLRU,
    "random_leaf": RandomLeaf,
    "belady": Belady,
    "session_end": SessionEnd,
}

THINNING: Mapping[str, Callable[..., Thinning]] = {
    "path_cap": PathCap,
    "coverage": CoverageCap,
    "variance": VarianceCap,
    "fifo_cap": FifoCap,
}


def make_checkpoint(value: Any, place: str = "cache.checkpoint") -> CheckpointPolicy:
    """A policy from `name`, `name+name` or `{name: ..., parameters}`; UserError names `place`."""
    if isinstance(value, str) and "+" in value:
        return Union(tuple(make(part, CHECKPOINT, place) for part in value.split("+")))
    return make(value, CHECKPOINT, place)


def make_eviction(value: Any, place: str = "cache.eviction") -> EvictionPolicy:
    """A policy from `name` or `{name: ..., parameters}`; UserError names `place`."""
    return make(value, EVICTION, place)


def make_thinning(value: Any, place: str = "cache.thinning") -> Thinning | None:
    """A rule from `name` or `{name: ..., parameters}`, None from None; UserError names `place`."""
    return None if value is None else make(value, THINNING, place)
