"""Block LRU for cross-checks, from values of a config."""

from hybridsim.build.base import Built, Capacity, NoOptions, needed, serve_all
from hybridsim.cache.block_cache import BlockLRU
from hybridsim.config import UNLIMITED, CacheConfig, exact_size
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec


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
        lambda requests, _, progress: serve_all(blocks, requests, progress),
        None,
        lambda: {"peak_blocks": blocks.peak_blocks},
        Capacity(num_blocks=num_blocks),
        model,
        keeps_outputs=False,
        caps_last_token=False,
        notes=(note,),
    )
