"""Memories that an analysis is asked about: what an experiment refuses, an analysis refuses too.

The analyses have arithmetic of their own that gives some number for any memory, one that holds
not even a page and a state included. So the judge is the builder of runs, which is given here.
"""

from collections.abc import Callable, Iterable

from hybridsim.config import CacheConfig, RunConfig, exact_size, validate
from hybridsim.errors import UserError

Build = Callable[[RunConfig], object]


def check_sizes(
    config: RunConfig,
    sizes: Iterable[tuple[int, float | None]],
    build: Build,
    place: str,
    *,
    page_tokens: int,
) -> None:
    """Build the cache of each (memory in bytes, share of states in layout split or None).

    Raises the UserError of the first that is refused, at the option `place` and its value.
    """
    for memory_bytes, fraction in sizes:
        cache = {
            "layout": config.cache.layout,
            "page_size": page_tokens,
            "memory": memory_bytes,
            "state_fraction": fraction,
        }
        chosen = validate(CacheConfig, cache, "cache")
        try:
            build(config.model_copy(update={"cache": chosen}))
        except UserError as error:
            size = exact_size(memory_bytes)
            at = {
                "cache.memory": f"{place} {size}",
                "cache.state_fraction": f"--state-fraction {fraction} of {size}",
            }
            raise UserError(at.get(error.place, error.place), error.message) from None
