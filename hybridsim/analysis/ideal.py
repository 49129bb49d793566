"""What an infinite cache would reuse of a trace: the ceiling that no policy can pass."""

from collections.abc import Sequence

import numpy as np

from hybridsim.analysis.passes import cached_trie
from hybridsim.request import Request
from hybridsim.trie import build_trie


def ideal_hit_tokens(
    requests: Sequence[Request],
    *,
    keeps_outputs: bool,
    caps_last_token: bool,
    keeps_last_output: bool = False,
) -> np.ndarray:
    """Tokens of each request that an earlier one brought, `[num_requests]` int64.

    keeps_outputs: generated tokens of known content are cached too; keeps_last_output: even the
    last one, which is never fed back. caps_last_token: at least one prompt token is always
    computed, so that a hit is at most n - 1 tokens.
    """
    if keeps_last_output:
        ideal = build_trie(requests, outputs=True).match_tokens
    else:
        ideal = cached_trie(requests, outputs=keeps_outputs).match_tokens
    if not caps_last_token:
        return ideal
    limits = np.array([request.num_prompt_tokens - 1 for request in requests], dtype=np.int64)
    return np.minimum(ideal, np.maximum(limits, 0))


def ceiling_token_hit_rate(
    requests: Sequence[Request], ideal: np.ndarray, num_warmup: int
) -> float | None:
    """Ideal hits over prompt tokens, of the measured requests; None if they have no tokens."""
    measured = requests[num_warmup:]
    num_prompt_tokens = sum(request.num_prompt_tokens for request in measured)
    return int(ideal[num_warmup:].sum()) / num_prompt_tokens if num_prompt_tokens else None
