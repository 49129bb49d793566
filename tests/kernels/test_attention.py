"""Paged attention against a gathered softmax in float64. Pages not in use hold NaN."""

import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from hybridsim.kernels import attention  # noqa: E402
from hybridsim.kernels.attention import PagedKV, naive  # noqa: E402

from .helpers import relative_error  # noqa: E402

# query heads, KV heads, value size, rotary size (0: keys and values apart)
CASES = [(4, 2, 16, 0), (3, 1, 32, 0), (2, 2, 16, 0), (4, 1, 32, 16)]
SHAPES = pytest.mark.parametrize("shape", CASES, ids=str)


def int32(values, device):
    return torch.tensor(values, dtype=torch.int32, device=device)


def randn(*shape, seed, dtype, device):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(device)


def paged_cache(shape, lengths, page_size, dtype, device):
    """Random pages in random order for sequences of `lengths` tokens; the rest is NaN."""
    _, kv_heads, value_size, rotary = shape
    num_pages = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(num_pages) + 3, generator=torch.Generator().manual_seed(0)).tolist()
    table = torch.zeros(len(lengths), max(1, *num_pages) + 1, dtype=torch.int32)
    pages = torch.full((len(order), page_size, kv_heads, value_size + rotary), float("nan"))
    values = torch.full_like(pages, float("nan"))
    generator = torch.Generator().manual_seed(1)
    for n, length in enumerate(lengths):
        for i in range(num_pages[n]):
            page = order.pop()
            table[n, i] = page
            used = min(page_size, length - i * page_size)
            pages[page, :used] = torch.randn(used, *pages.shape[2:], generator=generator)
            values[page, :used] = torch.randn(used, *pages.shape[2:], generator=generator)
    pages, values = pages.to(dtype).to(device), values.to(dtype).to(device)
    cache = PagedKV.latent(pages, value_size) if rotary else PagedKV.gqa(pages, values)
    return cache, table.to(device)


@SHAPES
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("limit", [64, None])
def test_prefill_over_a_paged_prefix_equals_naive(
    shape, page_size, limit, device, half_dtype, monkeypatch
):
    """Prefixes of 0, partial and whole pages, one piece and several; one new token, none, several
    query blocks."""
    module = sys.modules["hybridsim.kernels.attention.work"]
    monkeypatch.setattr(module, "piece_limit", lambda *_: limit)
    heads, kv_heads, value_size, rotary = shape
    prefix, new = [0, 5, 148, 33, 0, 81], [40, 1, 17, 0, 3, 20]
    cache, table = paged_cache(shape, prefix, page_size, half_dtype, device)
    size, total = value_size + rotary, sum(new)
    fused = randn(total, (heads + 2 * kv_heads) * size, seed=2, dtype=half_dtype, device=device)
    q, k, v = fused.split([heads * size, kv_heads * size, kv_heads * size], dim=1)
    q, k, v = (x.unflatten(1, (-1, size)) for x in (q, k, v))
    if rotary:
        v = k[..., :value_size]
    work = attention.make_work(list(zip(new, prefix, strict=True)), 16, heads, device)
    assert len(work.joins) == (0 if limit is None else 4)  # two blocks of 17 rows, two of 20
    out = attention.prefill(q, k, v, cache, table, work, 0.2)
    first = 0
    for n, (old, count) in enumerate(zip(prefix, new, strict=True)):
        rows = slice(first, first + count)
        keys = torch.cat([naive.gather(cache.keys, table[n], old), k[rows]])
        old_values = naive.gather(cache.keys if rotary else cache.values, table[n], old)
        values = torch.cat([old_values[..., :value_size], v[rows]])
        expected = naive.attention(q[rows], keys, values, 0.2)
        if count:
            assert relative_error(out[rows], expected) < 5e-3
        first += count


@pytest.mark.parametrize("is_aligned", [True, False])
@pytest.mark.parametrize("shape", [*CASES, (2, 2, 32, 16)], ids=str)
def test_prefill_without_a_prefix_equals_naive(shape, is_aligned, device, half_dtype):
    """Tiles by descriptor where rows start at multiples of 16 bytes, by pointer elsewhere; the last
    shape is MLA with keys and values in every head. Neighbours in the pack must not be seen."""
    heads, kv_heads, value_size, rotary = shape
    new, size = [70, 1, 17, 0, 40], value_size + rotary
    is_latent = rotary > 0 and kv_heads == 1
    widths = [heads * size, kv_heads * size, kv_heads * value_size]
    total, odd = sum(new), 0 if is_aligned else 1
    fused = randn(total, sum(widths) + odd, seed=4, dtype=half_dtype, device=device)
    q, k, v = (x.unflatten(1, (h, -1)) for x, h in zip(
        fused[:, odd:].split(widths, dim=1), (heads, kv_heads, kv_heads), strict=True
    ))  # fmt: skip
    v = k[..., :value_size] if is_latent else v
    pages = torch.full((1, 16, kv_heads, size), float("nan"), dtype=half_dtype, device=device)
    if is_latent:
        cache = PagedKV.latent(pages, value_size)
    else:
        cache = PagedKV.gqa(pages, pages[..., :value_size].contiguous())
    table = int32([[0]] * len(new), device)
    work = attention.make_work([(n, 0) for n in new], 16, heads, device)
    out = attention.prefill(q, k, v, cache, table, work, 0.2)
    first = 0
    for count in new:
        rows = slice(first, first + count)
        if count:
            assert relative_error(out[rows], naive.attention(q[rows], k[rows], v[rows], 0.2)) < 5e-3
        first += count


@SHAPES
@pytest.mark.parametrize("split_tokens", [None, 256, 16])
def test_decode_equals_naive(shape, split_tokens, device, half_dtype):
    """Contexts of one token, of part of a page and of several splits."""
    heads, _, value_size, rotary = shape
    lengths = [1, 7, 64, 150]
    cache, table = paged_cache(shape, lengths, 16, half_dtype, device)
    q = randn(4, heads, value_size + rotary, seed=3, dtype=half_dtype, device=device)
    out = attention.decode(q, cache, table, int32(lengths, device), 0.2, split_tokens)
    for n, length in enumerate(lengths):
        expected = naive.paged_attention(q[n : n + 1], cache, table[n], length, 0.2)
        assert relative_error(out[n], expected[0]) < 5e-3


def test_prefill_equals_decode_token_by_token(device, half_dtype):
    """Writing k and v to pages and decoding each token gives what one prefill gives."""
    shape, total = (4, 2, 16, 0), 20
    q, k, v = (randn(total, h, 16, seed=h, dtype=half_dtype, device=device) for h in (4, 2, 2))
    empty = torch.full((3, 8, 2, 16), float("nan"), dtype=half_dtype, device=device)
    cache = PagedKV.gqa(empty, empty.clone())
    table = int32([[2, 0, 1]], device)
    work = attention.make_work([(total, 0)], 16, 4, device)
    whole = attention.prefill(q, k, v, cache, table, work, 0.25)
    for t in range(total):
        row = int32([int(table[0, t // 8]) * 8 + t % 8], device)
        attention.write_rows(k[t : t + 1], cache.keys, row)
        attention.write_rows(v[t : t + 1], cache.values, row)
        out = attention.decode(q[t : t + 1], cache, table, int32([t + 1], device), 0.25)
        assert relative_error(out[0], whole[t]) < 5e-3
    assert shape[0] == q.shape[1]


@pytest.mark.parametrize(
    ("heads", "size", "message"),
    [(3, 16, "multiple of KV heads"), (4, 32, "differ in size")],
)
def test_inputs_that_do_not_fit_are_named(heads, size, message, device):
    cache, table = paged_cache((4, 2, 16, 0), [4], 16, torch.float16, device)
    q = torch.zeros(1, heads, size, device=device)
    with pytest.raises(ValueError, match=message):
        attention.decode(q, cache, table, int32([4], device), 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.update(q=x["q"][:4]), "work has 5 tokens, q 4"),
        (lambda x: x.update(k=x["k"][:4]), r"k is \[4, 2, 16\]; allowed: \[5, 2, 16\]"),
        (lambda x: x.update(v=x["v"][:, :1]), r"v is \[5, 1, 16\]; allowed: \[5, 2, 16\]"),
        (lambda x: x.update(k=x["k"].mT.contiguous().mT), "k: heads and channels not contiguous"),
        (
            lambda x: x.update(out=torch.empty(5, 4, 32)[..., :16]),
            r"out .* contiguous \[5, 4, 16\]",
        ),
    ],
)
def test_new_tokens_that_do_not_fit_are_named(change, message, device):
    cache, table = paged_cache((4, 2, 16, 0), [4], 16, torch.float16, device)
    q, k, v = (torch.zeros(5, heads, 16, dtype=torch.float16, device=device) for heads in (4, 2, 2))
    given = {"q": q, "k": k, "v": v, "cache": cache, "page_table": table,
             "work": attention.make_work([(5, 4)], 16, 4, device), "scale": 1.0}  # fmt: skip
    change(given)
    with pytest.raises(ValueError, match=message):
        attention.prefill(**given)


MODEL_SHAPES = pytest.mark.parametrize(
    "shape", [(8, 2, 256, 0), (32, 8, 128, 0), (16, 2, 64, 0), (32, 1, 512, 64)], ids=str
)


@pytest.mark.gpu
@MODEL_SHAPES
def test_prefill_at_model_sizes(shape, device):
    heads, kv_heads, value_size, rotary = shape
    prefix, new = [1000, 0, 37, 9000], [150, 700, 1, 20]
    cache, table = paged_cache(shape, prefix, 16, torch.bfloat16, device)
    size, total = value_size + rotary, sum(new)
    q, k, v = (
        randn(total, h, size, seed=h, dtype=torch.bfloat16, device=device)
        for h in (heads, kv_heads, kv_heads)
    )
    if rotary:
        v = k[..., :value_size]
    chunks = list(zip(new, prefix, strict=True))
    block = attention.query_block(cache, chunks, heads)
    work = attention.make_work(chunks, block, heads, device)
    assert len(work.joins) > 0
    scale = size**-0.5
    out = attention.prefill(q, k, v, cache, table, work, scale)
    first = 0
    for n, (old, count) in enumerate(zip(prefix, new, strict=True)):
        rows = slice(first, first + count)
        keys = torch.cat([naive.gather(cache.keys, table[n], old), k[rows]])
        old_values = naive.gather(cache.keys if rotary else cache.values, table[n], old)
        values = torch.cat([old_values[..., :value_size], v[rows]])
        assert relative_error(out[rows], naive.attention(q[rows], keys, values, scale)) < 1e-2
        first += count


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [(8, 2, 256, 0), (32, 8, 128, 0), (4, 4, 128, 64)], ids=str)
@pytest.mark.parametrize("new", [[700], [1500, 3, 700]], ids=str)
def test_prefill_without_a_prefix_at_model_sizes(heads, new, device):
    """Few blocks and many; keys of 192 channels with values of 128 are MLA decompressed."""
    heads, kv_heads, value_size, rotary = heads
    size, total = value_size + rotary, sum(new)
    q, k, v = (
        randn(total, h, width, seed=width + h, dtype=torch.bfloat16, device=device)
        for h, width in ((heads, size), (kv_heads, size), (kv_heads, value_size))
    )
    pages = torch.full((1, 16, kv_heads, size), float("nan"), dtype=torch.bfloat16, device=device)
    cache = PagedKV.gqa(pages, pages[..., :value_size].contiguous())
    table, chunks = int32([[0]] * len(new), device), [(n, 0) for n in new]
    work = attention.make_work(chunks, attention.query_block(cache, chunks, heads), heads, device)
    scale, first = size**-0.5, 0
    out = attention.prefill(q, k, v, cache, table, work, scale)
    for count in new:
        rows = slice(first, first + count)
        expected = naive.attention(q[rows], k[rows], v[rows], scale)
        assert relative_error(out[rows], expected) < 1e-2
        first += count


@pytest.mark.gpu
@MODEL_SHAPES
def test_decode_at_model_sizes(shape, device):
    heads, _, value_size, rotary = shape
    lengths = [1, 5000, 64, 300]
    cache, table = paged_cache(shape, lengths, 16, torch.bfloat16, device)
    q = randn(4, heads, value_size + rotary, seed=3, dtype=torch.bfloat16, device=device)
    scale = (value_size + rotary) ** -0.5
    out = attention.decode(q, cache, table, int32(lengths, device), scale)
    for n, length in enumerate(lengths):
        expected = naive.paged_attention(q[n : n + 1], cache, table[n], length, scale)
        assert relative_error(out[n], expected[0]) < 1e-2
