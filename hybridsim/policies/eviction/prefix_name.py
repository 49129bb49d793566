"""A name for the first tokens of a request, equal for equal content."""

from hashlib import blake2b

import numpy as np

from hybridsim.request import Request


def prefix_name(request: Request, num_tokens: int) -> bytes:
    """16 bytes that name the first `num_tokens` (>= 1, all of known content). O(spans).

    Made of the spans that end before the last token, and of the id of the span that holds it.
    """
    spans = request.prompt
    if num_tokens > spans.num_tokens:
        spans = spans.joined(request.output)
    row = int(np.searchsorted(spans.ends, num_tokens, side="left"))
    digest = blake2b(digest_size=16)
    digest.update(spans.ids[: row + 1].tobytes())
    digest.update(spans.ends[:row].tobytes())
    digest.update(num_tokens.to_bytes(8, "little"))
    return digest.digest()
