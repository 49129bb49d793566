"""What the policy tests share: letters for tokens, caches of 1-byte pages and 10-byte states."""

import numpy as np

from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies import make_checkpoint, make_eviction, make_thinning
from hybridsim.policies.base import Setting
from hybridsim.request import Request, Spans

KV_BYTES, STATE_BYTES = 1, 10


def flops(num_tokens, num_prefix_tokens):
    """2 a token, and 1 for each pair of a token and one before it or itself."""
    return 2 * num_tokens + sum(num_prefix_tokens + i + 1 for i in range(num_tokens))


def ask(prompt, output=0, **kwargs):
    """One token a letter; an output is letters, or a number of tokens of unknown content."""
    out = Spans.unknown(output) if isinstance(output, int) else letters(output)
    return Request(prompt, letters(prompt), out, **kwargs)


def letters(text):
    return Spans.of([(ord(letter), 1) for letter in text])


def make_cache(
    requests, checkpoint, eviction="lru", *, pages=None, slots=None, shared_bytes=None,
    thinning=None, state_bytes=STATE_BYTES, **options,
):  # fmt: skip
    """Prepared for the requests. Split layout, or shared if `shared_bytes` is given."""
    memory = (
        Memory(KV_BYTES, state_bytes, pages, slots)
        if shared_bytes is None
        else SharedMemory(KV_BYTES, state_bytes, shared_bytes)
    )
    cache = RadixCache(
        memory, 1, make_checkpoint(checkpoint), make_eviction(eviction),
        thinning=make_thinning(thinning), **options,
    )  # fmt: skip
    shared = shared_bytes is not None
    rng = np.random.default_rng(7)
    cache.prepare(Setting(requests, KV_BYTES, state_bytes, flops, rng, shared))
    return cache


def prefix(node):
    """The letters up to the node's end."""
    user = node.last_user
    ids = [*user.prompt.ids.tolist(), *user.output.ids.tolist()]
    return "".join(map(chr, ids[: node.end]))


def states(cache):
    """Prefixes that carry a state, sorted."""
    return sorted(prefix(node) for node in cache.tree.nodes() if node.has_state)


def resident(cache):
    """Prefixes whose KV is there and has no KV below it, sorted."""
    return sorted(prefix(node) for node in cache.tree.nodes() if not node.children)
