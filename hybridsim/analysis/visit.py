"""What a replay over runs is told: sizes of the pools, and each request reduced to its runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pools:
    """Sizes of a page and a state, and how much there is.

    Shared: `capacity` in bytes, `slots` None. Split: `capacity` in pages, `slots` in states; then
    `page` is 1 and `state` is 0, and states are counted apart.
    """

    page_tokens: int
    page: int
    state: int
    capacity: int
    slots: int | None = None
    is_hybrid: bool = True

    def holds(self, num_pages: int, num_states: int) -> bool:
        """Whether so much fits into the empty memory."""
        if self.slots is not None and num_states > self.slots:
            return False
        return num_pages * self.page + num_states * self.state <= self.capacity


@dataclass(frozen=True, slots=True)
class Visit:
    """A request as the replay sees it; lengths in pages unless they say tokens.

    `runs`: (request that touched it last, where this path leaves that one's) from the top down.
    `limit`: longest hit. `prompt_known`, `known`: of known content in the prompt, and in all that
    is cached. `prompt`: what the prompt takes. `known_tokens`: `known`, not rounded.
    `final_tokens`: all tokens that are computed.
    """

    runs: tuple[tuple[int, int], ...]
    limit: int
    prompt_known: int
    known: int
    prompt: int
    prompt_tokens: int
    known_tokens: int
    final_tokens: int


@dataclass(slots=True)
class Running:
    """What the running request has: pages in the tree, pages of its own, and perhaps a slot."""

    visit: Visit
    committed: int
    private: int
    has_slot: bool = False
