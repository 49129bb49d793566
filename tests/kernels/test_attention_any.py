"""Attention prefill of whatever a scheduler may pack, cut into pieces anyhow, against the truth."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hybridsim.kernels import attention  # noqa: E402
from hybridsim.kernels.attention import naive, work  # noqa: E402

from .helpers import relative_error  # noqa: E402
from .test_attention import paged_cache, randn  # noqa: E402

# Around the sizes of tiles and pages, and anything else; nothing at all among them.
NEW = st.sampled_from([0, 1, 16, 17]) | st.integers(0, 50)
PREFIX = st.sampled_from([0, 1, 63, 64, 65, 128]) | st.integers(0, 200)
# query heads, KV heads, value size, rotary size (0: keys and values apart)
SHAPES = st.sampled_from([(2, 2, 16, 0), (3, 1, 32, 0), (4, 2, 16, 0), (2, 1, 32, 16)])


@given(
    st.lists(st.tuples(NEW, PREFIX), max_size=4), SHAPES, st.sampled_from([1, 3, 16, 40]),
    st.sampled_from([16, 32]), st.sampled_from([64, 128, None]), st.integers(0, 2**16),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_any_batch_in_any_pieces_equals_naive(chunks, shape, page_size, rows, limit, seed):
    """Pages outside prefixes and the room between tokens hold NaN, and so does `out` before."""
    device, dtype = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.half)
    heads, kv_heads, value_size, rotary = shape
    size, total = value_size + rotary, sum(new for new, _ in chunks)
    cache, table = paged_cache(shape, [p for _, p in chunks] or [0], page_size, dtype, device)
    widths = [heads * size, kv_heads * size, kv_heads * value_size]
    fused = randn(total, sum(widths) + 8, seed=seed, dtype=dtype, device=device)
    fused[:, sum(widths) :] = float("nan")
    q, k, v, _ = fused.split([*widths, 8], dim=1)
    q, k, v = (x.unflatten(1, (h, -1)) for x, h in ((q, heads), (k, kv_heads), (v, kv_heads)))
    v = k[..., :value_size] if rotary else v
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "piece_limit", lambda *_: limit)
        made = attention.make_work(chunks, rows, heads, device)
    out = torch.full((total, heads, value_size), float("nan"), dtype=dtype, device=device)
    assert attention.prefill(q, k, v, cache, table, made, 0.2, out) is out
    first = 0
    for n, (new, prefix) in enumerate(chunks):
        tokens = slice(first, first + new)
        keys = torch.cat([naive.gather(cache.keys, table[n], prefix), k[tokens]])
        pages = cache.keys if cache.values is None else cache.values
        values = naive.gather(pages, table[n], prefix)[..., :value_size]
        expected = naive.attention(q[tokens], keys, torch.cat([values, v[tokens]]), 0.2)
        if new:
            assert relative_error(out[tokens], expected) < (5e-3 if device == "cpu" else 1e-2)
        first += new


def test_parts_beyond_the_range_of_an_offset_are_refused():
    """2000 requests of 4 heads over 32 million tokens: 31,250 splits of 1024 for each, or more, of
    16 channels are 4e9 numbers; offsets have 31 bits."""
    cache, _ = paged_cache((4, 2, 16, 0), [1], 16, torch.half, "cpu")
    table = torch.zeros(1, 1, dtype=torch.int32).expand(2000, 2_000_000)
    q, lengths = torch.zeros(2000, 4, 16).half(), torch.ones(2000, dtype=torch.int32)
    with pytest.raises(ValueError, match="parts of 16 channels"):
        attention.decode(q, cache, table, lengths, 1.0)
