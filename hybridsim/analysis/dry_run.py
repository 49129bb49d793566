"""How much a placement of states saves when memory is counted in whole sequences.

The dry run of sparse prefix caching (arXiv 2605.05219): the last `num_sequences` prompts are kept,
each with the states that a checkpoint policy placed in it; a prompt continues from the deepest of
these at or above its longest match with a kept one of its group. States never compete with KV
here, so a ranking says where states belong, not what they are worth in bytes.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.request import Request, Spans


@dataclass(frozen=True, slots=True)
class Placement:
    """Over the measured requests: tokens saved over prompt tokens, and states kept a request."""

    token_hit_rate: float
    num_states_per_request: float


@dataclass(frozen=True, slots=True)
class _Kept:
    prompt: Spans
    group: str | None
    positions: Sequence[int]


def dry_run(
    requests: Iterable[Request],
    policy: CheckpointPolicy,
    *,
    num_sequences: int,
    warmup_requests: int = 0,
    grid_tokens: int = 64,
) -> Placement:
    """Serve the prompts in order; the first `warmup_requests` only fill the cache.

    Prompts match within their session (`session_id`, None for one group of all). Of equal longest
    matches the one kept longest is used. Positions are floored to `grid_tokens`. Cost: each prompt
    is compared with all that are kept of its group.
    """
    kept: deque[_Kept] = deque(maxlen=num_sequences)
    num_saved = num_tokens = num_states = num_measured = 0
    for index, request in enumerate(requests):
        match, hit = _best(kept, request)
        positions = _positions(policy, request, match, grid_tokens)
        kept.append(_Kept(request.prompt, request.session_id, positions))
        if index >= warmup_requests:
            num_saved += hit
            num_tokens += request.num_prompt_tokens
            num_states += len(positions)
            num_measured += 1
    return Placement(num_saved / max(num_tokens, 1), num_states / max(num_measured, 1))


def _best(kept: Iterable[_Kept], request: Request) -> tuple[int, int]:
    """Longest match with a kept prompt, and the deepest state of that prompt within it."""
    match = 0
    positions: tuple[int, ...] = (0,)
    for other in kept:
        if other.group == request.session_id:
            common = num_common_tokens(other.prompt, request.prompt)
            if common > match:
                match, positions = common, (0, *other.positions)
    return match, max(p for p in positions if p <= match)


def _positions(
    policy: CheckpointPolicy, request: Request, match: int, grid_tokens: int
) -> list[int]:
    """Rising positions inside the prompt. Each is kept whole, so none is left to another one."""
    num_tokens = request.num_prompt_tokens
    view = PromptView(request, 0, match, num_tokens, grid_tokens)
    return policy.positions_on_grid(view, num_tokens)


def num_common_tokens(one: Spans, two: Spans) -> int:
    """Tokens on which both agree from the start. O(spans)."""
    num_rows = min(len(one), len(two))
    differs = one.ids[:num_rows] != two.ids[:num_rows]
    differs |= one.ends[:num_rows] != two.ends[:num_rows]
    row = int(differs.argmax()) if differs.any() else num_rows
    if row < num_rows and one.ids[row] == two.ids[row]:
        return int(min(one.ends[row], two.ends[row]))
    return int(one.ends[row - 1]) if row else 0


Overlaps = Literal["uniform", "normal"]


def synthetic_overlaps(
    overlaps: Overlaps,
    seed: int = 42,
    *,
    num_requests: int = 1000,
    num_sessions: int = 10,
    num_tokens: int = 4096,
) -> list[Request]:
    """The synthetic workload of the paper's code: prompts of equal length, sessions in turn; each
    shares L tokens with its session's anchor, the rest is its own.

    uniform: L from 0 to num_tokens; normal: 0.7 and 0.1 of 4096 (2867, 410), cut to that range.
    numpy's legacy generator is used, since the published numbers come from its stream.
    """
    # The stream of default_rng differs, and with it every number that is to be compared.
    rng = np.random.RandomState(seed)
    return list(
        _prompts(_depths(rng, overlaps, num_requests, num_tokens), num_sessions, num_tokens)
    )


def _depths(
    rng: np.random.RandomState, overlaps: Overlaps, num_requests: int, num_tokens: int
) -> Iterator[int]:
    for _ in range(num_requests):
        if overlaps == "uniform":
            yield int(rng.randint(0, num_tokens + 1))
        else:
            yield int(np.clip(rng.normal(2867, 410), 0, num_tokens))


def _prompts(depths: Iterable[int], num_sessions: int, num_tokens: int) -> Iterator[Request]:
    for index, depth in enumerate(depths):
        session = index % num_sessions
        pairs = [(session, depth), (num_sessions + index, num_tokens - depth)]
        spans = Spans.of([(content, length) for content, length in pairs if length])
        yield Request(str(index), spans, Spans.unknown(0), session_id=str(session))
