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
    record.miss_reason = miss_reason(match, ideal_tokens)
    return record


def account(record: RequestRecord, lease: Lease) -> None:
    """Add what was done for the request under `lease`."""
    record.num_evicted_tokens += lease.num_evicted_tokens
    record.num_evicted_states += lease.num_evicted_states
    record.num_checkpoints += lease.num_checkpoints


def miss_reason(match: Match, ideal_tokens: int | None = None) -> MissReason:
    """The reason for the larger part of the tokens that an infinite cache would have hit as well.

    ideal_tokens: that cache's hit; None: unknown, only what is resident is judged.
    """
    ideal = match.num_match_tokens if ideal_tokens is None else ideal_tokens
    if ideal == 0:
        return MissReason.COLD
    if match.num_hit_tokens >= ideal:
        return MissReason.NONE
    num_kv_lost = ideal - match.num_match_tokens
    num_state_lost = max(0, match.num_once_tokens - match.num_hit_tokens)
    num_never_saved = match.num_match_tokens - match.num_hit_tokens - num_state_lost
    never_saved = MissReason.FIRST_FORK if match.is_first_fork else MissReason.IN_UNIQUE_TOKENS
    losses = {
        MissReason.KV_EVICTED: num_kv_lost,
        MissReason.STATE_EVICTED: num_state_lost,
        never_saved: num_never_saved,
    }
    return max(losses, key=lambda reason: losses[reason])
