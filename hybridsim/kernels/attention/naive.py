"""The truth of attention: one sequence, keys and values gathered, softmax in float64."""

import torch

from hybridsim.kernels.attention.pages import PagedKV


def gather(pages: torch.Tensor, page_table: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """A sequence's first rows `[num_tokens, Hkv, D]` out of pages `[P, B, Hkv, D]`."""
    page_size = pages.shape[1]
    rows = [pages[page] for page in page_table.tolist()[: -(-num_tokens // page_size)]]
    if not rows:
        return pages.new_empty(0, *pages.shape[2:])
    return torch.cat(rows)[:num_tokens]


def attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale: float,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Causal attention of the last T positions of one sequence of L tokens.

    q `[T, H, D]`, keys `[L, Hkv, D]`, values `[L, Hkv, Dv]`; query t sees keys 0 .. L - T + t.
    Returns `[T, H, Dv]` in `dtype`.
    """
    num_queries, num_heads, _ = q.shape
    repeat = num_heads // keys.shape[1]
    keys = keys.to(dtype).repeat_interleave(repeat, dim=1)
    values = values.to(dtype).repeat_interleave(repeat, dim=1)
    scores = torch.einsum("thd,lhd->htl", q.to(dtype), keys) * scale
    position = torch.arange(keys.shape[0], device=q.device)
    first = keys.shape[0] - num_queries
    is_later = position[None, :] > position[first:, None]
    weights = torch.softmax(scores.masked_fill(is_later, -torch.inf), dim=-1)
    return torch.einsum("htl,lhd->thd", weights, values)


def paged_attention(
    q: torch.Tensor, cache: PagedKV, page_table: torch.Tensor, num_tokens: int, scale: float
) -> torch.Tensor:
    """`attention` of q `[T, H, D]` at the end of the first `num_tokens` tokens in the pages."""
    keys = gather(cache.keys, page_table, num_tokens)
    values = keys[..., : cache.value_size]
    if cache.values is not None:
        values = gather(cache.values, page_table, num_tokens)
    return attention(q, keys, values, scale)
