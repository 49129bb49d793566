"""Cases of row copies (states, KV pages) and of attention."""

from collections.abc import Iterator

import torch

from hybridsim.kernels import attention, rows
from hybridsim.kernels.attention import PagedKV
from hybridsim.kernels.bench.case import Case, MakeCall, permutation, random_normal
from hybridsim.kernels.bench.timing import Call, rotations

BF16 = torch.bfloat16
# (query heads, KV heads, value size, rotary size): qwen3.5-0.8b, a plain GQA model, kimi-linear
GEOMETRIES = {"d256": (8, 2, 256, 0), "d128": (32, 8, 128, 0), "mla": (32, 1, 512, 64)}
# For prefill, engines give MLA every head's own keys and values back.
PREFILL_GEOMETRIES = GEOMETRIES | {"mla expanded": (32, 32, 128, 64)}


def _copy_maker(layers: int, row_bytes: int, pairs: int, is_torch: bool) -> MakeCall:
    def make(seed: int) -> Call:
        pool = random_normal((layers, 2 * pairs, row_bytes // 4), seed, torch.float32)
        order = permutation(2 * pairs, seed + 7)
        sources, targets = order[:pairs].contiguous(), order[pairs:].contiguous()
        long_sources, long_targets = sources.long(), targets.long()
        shown = int(targets[0])

        def ours() -> torch.Tensor:
            rows.copy_rows(pool, sources, targets)
            return pool[:, shown]

        def torch_copy() -> torch.Tensor:
            pool.index_copy_(1, long_targets, pool.index_select(1, long_sources))
            return pool[:, shown]

        return torch_copy if is_torch else ours

    return make


def copy_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """States of qwen3.5-0.8b (18 layers x 1 MiB) and KV pages (6 layers x 16 tokens x 2 KiB)."""
    for name, layers, row_bytes, counts in (
        ("copy states", 18, 2**20, (1, 4, 16, 64)), ("copy pages", 6, 2**15, (16, 256, 2048)),
    ):  # fmt: skip
        for pairs in counts[1:2] if quick else counts:
            num_bytes = 2 * layers * row_bytes * pairs
            versions = {"ours": _copy_maker(layers, row_bytes, pairs, False)}
            if with_rivals:
                versions["torch"] = _copy_maker(layers, row_bytes, pairs, True)
            target = ("floor", 0.85) if name == "copy states" and pairs >= 4 else None
            yield Case(name, {"pairs": pairs, "layers": layers}, num_bytes, 0, versions,
                       rotations(num_bytes), target)  # fmt: skip


def make_cache(geometry: str, num_pages: int, page_size: int, seed: int) -> PagedKV:
    """Random pages of a geometry."""
    _, kv_heads, value_size, rotary = PREFILL_GEOMETRIES[geometry]
    shape = (num_pages, page_size, kv_heads)
    keys = random_normal((*shape, value_size + rotary), seed, BF16)
    if geometry == "mla":
        return PagedKV.latent(keys, value_size)
    return PagedKV.gqa(keys, random_normal((*shape, value_size), seed + 1, BF16))


def _decode_maker(geometry: str, batch: int, context: int) -> MakeCall:
    heads, _, value_size, rotary = GEOMETRIES[geometry]

    def make(seed: int) -> Call:
        pages = context // 16
        cache = make_cache(geometry, batch * pages, 16, seed)
        table = permutation(batch * pages, seed + 7).view(batch, pages)
        q = random_normal((batch, heads, value_size + rotary), seed + 2, BF16)
        lengths = torch.full((batch,), context, device="cuda", dtype=torch.int32)
        scale = (value_size + rotary) ** -0.5
        return lambda: attention.decode(q, cache, table, lengths, scale)

    return make


def decode_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """Paged decode attention, pages of 16 tokens in random order."""
    points = (
        [(32, 16384)] if quick else [(1, 16384), (8, 16384), (32, 16384), (64, 1024), (256, 1024)]
    )
    for geometry, (_, kv_heads, value_size, rotary) in GEOMETRIES.items():
        for batch, context in points:
            parts = 1 if rotary else 2
            num_bytes = batch * context * kv_heads * (value_size + rotary) * 2 * parts
            target = ("floor", 0.8) if context == 16384 else None
            yield Case(f"decode attention {geometry}", {"batch": batch, "context": context},
                       num_bytes, 0, {"ours": _decode_maker(geometry, batch, context)},
                       rotations(num_bytes), target)  # fmt: skip


def _prefill_maker(geometry: str, tokens: int, prefix: int, rival: str | None) -> MakeCall:
    heads, kv_heads, value_size, rotary = PREFILL_GEOMETRIES[geometry]
    size = value_size + rotary

    def make(seed: int) -> Call:
        q = random_normal((tokens, heads, size), seed, BF16)
        k = random_normal((tokens, kv_heads, size), seed + 1, BF16)
        v = random_normal((tokens, kv_heads, value_size), seed + 2, BF16)
        if geometry == "mla":
            v = k[..., :value_size]
        if rival is not None:
            return lambda: _sdpa(q, k, v, rival)
        cache = make_cache(geometry, max(1, prefix // 16), 16, seed + 3)
        table = permutation(max(1, prefix // 16), seed + 7).view(1, -1)
        block = attention.query_block(cache, [(tokens, prefix)], heads)
        work = attention.make_work([(tokens, prefix)], block, heads, "cuda")
        return lambda: attention.prefill(q, k, v, cache, table, work, size**-0.5)

    return make


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, backend: str) -> torch.Tensor:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    flash, cudnn = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
    kinds = {"sdpa": [cudnn, flash], "sdpa_flash": [flash], "sdpa_cudnn": [cudnn]}
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    # "sdpa" leaves torch the choice.
    with torch.no_grad(), sdpa_kernel(kinds[backend]):
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
    return out[0].transpose(0, 1)


def prefill_cases(quick: bool, with_rivals: bool) -> Iterator[Case]:
    """Prefill attention; without a prefix beside torch's kernels, which know no pages."""
    for geometry, (heads, kv_heads, value_size, rotary) in PREFILL_GEOMETRIES.items():
        points = [(2048, 0), (8192, 0)]
        if not quick:
            points = [(1024, 0), (4096, 0), (16384, 0), (1024, 16384), (64, 32768)]
        for tokens, prefix in points:
            size = value_size + rotary
            pairs = tokens * prefix + tokens * (tokens + 1) // 2
            # Queries and outputs, keys and values; of MLA's latent cache values are part of keys.
            value_width = 0 if geometry == "mla" else value_size
            num_bytes = 2 * (size + value_size) * tokens * heads
            num_bytes += 2 * (size + value_width) * (tokens + prefix) * kv_heads
            versions = {"ours": _prefill_maker(geometry, tokens, prefix, None)}
            if with_rivals and not prefix and not rotary:
                for rival in ("sdpa", "sdpa_flash", "sdpa_cudnn"):
                    versions[rival] = _prefill_maker(geometry, tokens, prefix, rival)
            target = ("sdpa", 1.25) if not prefix and not rotary else None
            yield Case(f"prefill attention {geometry}", {"tokens": tokens, "prefix": prefix},
                       num_bytes, 2 * pairs * heads * (size + value_size), versions,
                       rotations(num_bytes), target)  # fmt: skip
