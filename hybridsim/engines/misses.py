"""Why a request reused less than an endless cache could have given it, to the token.

The tokens lost, ideal minus hit, are shared out among reasons so that they add up exactly:

1. from the hit to the deepest state ever saved within the ideal: evicted, the state alone or the
   KV as well;
2. from there to the last grid position of the ideal: nobody saved a state there. Because this
   request is the first to part from earlier ones here and only now saves one; because the states
   lie deeper, in tokens that this prompt does not have; or because no grid was reached, decode's
   included;
3. from there to the end of the ideal: less than a grid, or less than one block in all.
"""

from collections import Counter
from dataclasses import dataclass

from hybridsim.engines.content import Content
from hybridsim.engines.history import History, Past
from hybridsim.records import MissReason


@dataclass(frozen=True, slots=True)
class Reuse:
    """What an engine did for one request. Counts are tokens.

    num_match_tokens: resident KV. saved: positions at which it kept a state for later requests.
    num_dropped_tokens: given up of the hit for the sake of a drafter. num_lookahead_tokens: tokens
    after a saved position that must agree too, also for a drafter. keeps: False for an engine
    without a prefix cache, which frees everything when a request ends.
    """

    num_hit_tokens: int
    num_match_tokens: int
    saved: tuple[int, ...] = ()
    num_dropped_tokens: int = 0
    keeps: bool = True
    num_lookahead_tokens: int = 0


class MissLedger:
    """Explains requests one after another and keeps the sums.

    grid_tokens: positions at which the engine can reuse anything are multiples of it.
    """

    def __init__(self, grid_tokens: int) -> None:
        self._grid = grid_tokens
        self._history = History()
        self.lost_tokens: Counter[MissReason] = Counter()
        self.num_ideal_tokens = 0
        self.num_hit_tokens = 0

    def explain(
        self, content: Content, num_prompt_tokens: int, reuse: Reuse
    ) -> dict[MissReason, int]:
        """Tokens lost by reason; they sum to ideal minus hit. Remembers nothing of the request."""
        past = self._history.look_up(content, num_prompt_tokens - 1)
        losses = _losses(past, reuse, self._grid)
        self.lost_tokens.update(losses)
        self.num_ideal_tokens += past.num_ideal_tokens
        self.num_hit_tokens += reuse.num_hit_tokens
        return losses

    def remember(self, content: Content, num_computed_tokens: int, saved: tuple[int, ...]) -> None:
        """The request is done: what it computed, and where states were kept."""
        self._history.add(content, num_computed_tokens, saved)


def main_reason(losses: dict[MissReason, int], num_ideal_tokens: int) -> MissReason:
    """The reason that cost most; `cold` when there was nothing to reuse."""
    if losses:
        return max(losses, key=lambda reason: losses[reason])
    return MissReason.NONE if num_ideal_tokens else MissReason.COLD


def _losses(past: Past, reuse: Reuse, grid: int) -> dict[MissReason, int]:
    ideal, hit = past.num_ideal_tokens, reuse.num_hit_tokens
    dropped = min(reuse.num_dropped_tokens, max(0, ideal - hit))
    if hit < past.num_saved_tokens and past.num_saved_tokens + reuse.num_lookahead_tokens > ideal:
        dropped = max(dropped, past.num_saved_tokens - hit)
    saved = max(past.num_saved_tokens, hit + dropped)
    on_grid = max(saved, ideal // grid * grid)
    shares = [
        (MissReason.DRAFTER_DROP, dropped),
        (_evicted(past, reuse), saved - hit - dropped),
        (_never_saved(past, reuse), on_grid - saved),
        (_remainder(ideal, grid, saved), ideal - on_grid),
    ]
    losses: dict[MissReason, int] = {}
    for reason, tokens in shares:
        if tokens:
            losses[reason] = losses.get(reason, 0) + tokens
    assert sum(losses.values()) == ideal - hit, (losses, past, reuse)
    return losses


def _evicted(past: Past, reuse: Reuse) -> MissReason:
    if past.num_saved_tokens <= reuse.num_match_tokens:
        return MissReason.STATE_EVICTED
    return MissReason.KV_EVICTED


def _never_saved(past: Past, reuse: Reuse) -> MissReason:
    if not reuse.keeps:
        return MissReason.KV_EVICTED
    if not past.saved_beyond:
        return MissReason.ALIGNMENT
    if any(reuse.num_hit_tokens < at <= past.num_ideal_tokens for at in reuse.saved):
        return MissReason.FIRST_FORK
    return MissReason.IN_UNIQUE_TOKENS


def _remainder(ideal: int, grid: int, saved: int) -> MissReason:
    return MissReason.BELOW_BLOCK if ideal < grid and not saved else MissReason.ALIGNMENT
