"""Block LRU for cross-checks, from values of a config."""

from collections.abc import Sequence

from hybridsim.build.base import Built, Capacity, Limits, NoOptions, needed, serve_all
from hybridsim.cache.block_cache import BlockLRU
from hybridsim.config import UNLIMITED, CacheConfig, exact_size
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec
from hybridsim.records import MissReason, RequestRecord


def build_block_lru(cache: CacheConfig, model: ModelSpec, options: NoOptions) -> Built:
    if cache.memory not in (None, UNLIMITED):
        raise UserError(
            "cache.memory",
            f"{exact_size(cache.memory)} has no meaning for engine block_lru; "
            "allowed: num_blocks, or memory: unlimited",
        )
    num_blocks = cache.num_blocks
    if cache.memory is None:
        num_blocks = needed(num_blocks, "cache.num_blocks", "an integer >= 1")
    blocks = BlockLRU(num_blocks)
    note = "block_lru: a block of the trace is one unit; the model's sizes and states play no part"
    return Built(
        lambda requests, ideal, progress: _explained(serve_all(blocks, requests, progress), ideal),
        None,
        lambda: {"peak_blocks": blocks.peak_blocks},
        Capacity(num_blocks=num_blocks),
        model,
        keeps_outputs=False,
        caps_last_token=False,
        notes=(note,),
        limits=None if num_blocks is None else Limits(1, 0, num_blocks, in_blocks=True),
    )


def _explained(records: list[RequestRecord], ideal_tokens: Sequence[int]) -> list[RequestRecord]:
    """Without states there is one way to lose a block: it was evicted."""
    for record, ideal in zip(records, ideal_tokens, strict=True):
        lost = ideal - record.num_hit_tokens
        record.lost_tokens = {MissReason.KV_EVICTED: lost} if lost else {}
        record.miss_reason = MissReason.KV_EVICTED if lost else MissReason.NONE
        if not ideal:
            record.miss_reason = MissReason.COLD
    return records
