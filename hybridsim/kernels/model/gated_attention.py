"""Full attention with grouped query heads, norms over queries and keys, and an output gate."""

from collections.abc import Sequence

import torch

from hybridsim.kernels import attention, pointwise
from hybridsim.kernels.attention import PagedKV
from hybridsim.kernels.model.batch import PAGE_SIZE, StepBatch
from hybridsim.kernels.model.place import Place
from hybridsim.models import AttentionSpec

# Qwen3.5 and Qwen3-Next rotate the first quarter of a head (partial_rotary_factor).
ROTARY_SHARE = 4

Inputs = tuple[torch.Tensor, ...]


class GatedAttention:
    """Gated attention of Qwen3.5 and Qwen3-Next over a paged cache."""

    def __init__(self, spec: AttentionSpec, hidden: int, num_pages: int, place: Place) -> None:
        self.spec = spec
        self.width = spec.num_heads * spec.head_dim
        self.kv_width = spec.num_kv_heads * spec.head_dim
        self.input = place.matrix(2 * self.width + 2 * self.kv_width, hidden)
        self.output = place.matrix(hidden, self.width)
        self.q_norm, self.k_norm = (place.full(1.0, spec.head_dim) for _ in range(2))
        pages = (num_pages, PAGE_SIZE, spec.num_kv_heads, spec.head_dim)
        self.cache = PagedKV.gqa(place.random(*pages), place.random(*pages))

    def query_block(self, chunks: Sequence[tuple[int, int]]) -> int:
        """Rows of a query block of attention prefill for these (new, prefix) tokens."""
        return attention.query_block(self.cache, chunks, self.spec.num_heads)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Queries, gates, keys and values, side by side."""
        return x @ self.input.T

    def convolve(self, projected: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        """Nothing to do before attention."""
        return projected

    def prepare(self, projected: torch.Tensor, convolved: torch.Tensor, batch: StepBatch) -> Inputs:
        """Normalised and rotated queries and keys, values; keys and values go to the pages."""
        sizes = [self.width, self.width, self.kv_width, self.kv_width]
        size = (-1, self.spec.head_dim)
        q, _, k, v = (x.unflatten(1, size) for x in projected.split(sizes, dim=1))
        rotary, positions = self.spec.head_dim // ROTARY_SHARE, batch.positions
        q = pointwise.norm_rotate(q, self.q_norm, positions, rotary)
        k = pointwise.norm_rotate(k, self.k_norm, positions, rotary)
        assert self.cache.values is not None
        attention.write_rows(k, self.cache.keys, batch.rows)
        attention.write_rows(v, self.cache.values, batch.rows)
        return q, k, v

    def mix(self, inputs: Inputs, batch: StepBatch) -> torch.Tensor:
        """Attention of all rows `[R, heads * head size]`."""
        cut, end = batch.shape.num_prefill_tokens, batch.shape.num_tokens
        q, k, v = inputs
        out = torch.empty_like(q)
        scale = self.spec.head_dim**-0.5
        if cut:
            attention.prefill(
                q[:cut], k[:cut], v[:cut], self.cache, batch.table, batch.work, scale, out=out[:cut]
            )  # fmt: skip
        if end > cut:
            attention.decode(
                q[cut:end], self.cache, batch.decode_table, batch.lengths, scale, out=out[cut:end]
            )
        return out.flatten(1)

    def finish(self, mixed: torch.Tensor, projected: torch.Tensor) -> torch.Tensor:
        """Output gate (in place) and output projection `[R, hidden]`."""
        pointwise.sigmoid_gate(mixed, projected[:, self.width : 2 * self.width])
        return mixed @ self.output.T


def check_attention(spec: AttentionSpec) -> None:
    """Raise ValueError for attention that no class here computes."""
    if spec.window is not None:
        raise ValueError("no step for attention with a window")
    if spec.latent is not None:
        if spec.latent.q_rank is not None or spec.output_gate:
            raise ValueError("no step for latent attention with a query bottleneck or a gate")
    elif not (spec.output_gate and spec.qk_norm):
        raise ValueError("no step for attention without output gate and norms of queries and keys")
