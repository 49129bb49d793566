"""From what the cache says about a request to its row in the results; both modes use it."""

from hybridsim.cache.base import Lease, Match
from hybridsim.records import MissReason, RequestRecord
from hybridsim.request import Request


def new_record(request: Request) -> RequestRecord:
    """A row with what the trace knows."""
    return RequestRecord(
        request.request_id,
        request.session_id,
        request.num_prompt_tokens,
        request.num_output_tokens,
    )


def refused(request: Request) -> RequestRecord:
    """The row of a request that can never fit."""
    record = new_record(request)
    record.miss_reason = MissReason.REFUSED
    return record


def admitted(request: Request, match: Match, ideal_tokens: int | None = None) -> RequestRecord:
    """The row of a request at its first admission."""
    record = new_record(request)
    record.num_match_tokens = match.num_match_tokens
    record.num_hit_tokens = match.num_hit_tokens
    record.hit_source = match.hit_source
    record.lost_tokens = losses(match, ideal_tokens)
    record.miss_reason = main_reason(record.lost_tokens, match, ideal_tokens)
    return record


def account(record: RequestRecord, lease: Lease) -> None:
    """Add what was done for the request under `lease`."""
    record.num_evicted_tokens += lease.num_evicted_tokens
    record.num_evicted_states += lease.num_evicted_states
    record.num_checkpoints += lease.num_checkpoints


def losses(match: Match, ideal_tokens: int | None = None) -> dict[MissReason, int]:
    """Why a request reused less than an infinite cache would have, in tokens by reason.

    ideal_tokens: that cache's hit; None: unknown, then only what is resident is judged. The sum is
    exactly ideal - hit:
    from the hit to the deepest state that was kept once: that state was evicted;
    from there to the last grid position of the match: no state was ever kept there, because none
    is ever saved, because nobody parted here before, or because the states lie deeper, in tokens of
    other prompts;
    from there to the end of the match, and below the last page of the ideal: too little for a page
    or a grid position; the rest of the ideal: its KV was evicted.
    """
    match_tokens, hit = match.num_match_tokens, match.num_hit_tokens
    ideal = max(match_tokens, ideal_tokens or 0)
    once = max(hit, match.num_once_tokens)
    on_grid = max(once, match_tokens // match.grid_tokens * match.grid_tokens)
    if match_tokens == hit:
        on_grid = hit  # whatever is resident is reused
    paged = max(match_tokens, ideal // match.page_tokens * match.page_tokens)
    shares = {
        MissReason.STATE_EVICTED: once - hit,
        _not_kept(match): on_grid - once,
        MissReason.ALIGNMENT: match_tokens - on_grid + ideal - paged,
        MissReason.KV_EVICTED: paged - match_tokens,
    }
    return {reason: tokens for reason, tokens in shares.items() if tokens}


def _not_kept(match: Match) -> MissReason:
    if not match.saves_states:
        return MissReason.NEVER_SAVED
    return MissReason.FIRST_FORK if match.is_first_fork else MissReason.IN_UNIQUE_TOKENS


def main_reason(
    lost_tokens: dict[MissReason, int], match: Match, ideal_tokens: int | None
) -> MissReason:
    """The reason that cost most; `cold` where there was nothing to reuse."""
    if lost_tokens:
        return max(lost_tokens, key=lambda reason: lost_tokens[reason])
    return MissReason.NONE if match.num_match_tokens or ideal_tokens else MissReason.COLD
