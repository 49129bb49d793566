"""What a run must say of requests that it did not serve, since a hit rate counts them as misses."""

from collections.abc import Sequence

from hybridsim.records import MissReason, RequestRecord


def refusals(records: Sequence[RequestRecord]) -> list[str]:
    """A sentence with number and share of the refused; nothing where all were served."""
    refused = [record for record in records if record.miss_reason == MissReason.REFUSED]
    if not refused:
        return []
    num_tokens = sum(record.num_prompt_tokens for record in records)
    share = sum(record.num_prompt_tokens for record in refused) / num_tokens
    return [
        f"{len(refused):,} of {len(records):,} requests were refused, with {share:.1%} of all "
        "prompt tokens; the rates count these as not reused"
    ]
