"""Multi-head latent attention without rotary embedding, as in Kimi Linear.

A token's cache is one latent and a part that all heads' keys share. Two forms give the same:
*absorbed* carries queries into the latent space and attends to latents; *expanded* makes keys and
values of every head from the latents and attends to those. Decoding is absorbed; prefill takes
whichever is faster, as engines do.
"""

from collections.abc import Sequence

import torch

from hybridsim.kernels import attention, pointwise
from hybridsim.kernels.attention import PagedKV
from hybridsim.kernels.model.batch import PAGE_SIZE, StepBatch
from hybridsim.kernels.model.place import Place
from hybridsim.models import AttentionSpec

# Expanding one token of a prefix costs as much as absorbed attention costs more than expanded for
# this many new tokens over it, measured on an H200.
BREAK_EVEN_TOKENS = 16

Inputs = tuple[torch.Tensor, ...]


def is_absorbed(chunks: Sequence[tuple[int, int]]) -> bool:
    """Whether prefill of these (new, prefix) tokens is faster in the absorbed form.

    Pairs of queries and keys weigh against tokens of prefixes to expand; new tokens pass the same
    products in either form.
    """
    pairs = sum(new * (prefix + new / 2) for new, prefix in chunks)
    return pairs < BREAK_EVEN_TOKENS * sum(prefix for _, prefix in chunks)


class LatentAttention:
    """MLA with queries projected at once (no bottleneck)."""

    def __init__(self, spec: AttentionSpec, hidden: int, num_pages: int, place: Place) -> None:
        assert spec.latent is not None
        self.spec, self.latent, heads = spec, spec.latent, spec.num_heads
        self.key_size = self.latent.nope_dim + self.latent.rope_dim
        self.query_width = heads * self.key_size
        self.latent_size = self.latent.kv_rank + self.latent.rope_dim
        self.input = place.matrix(self.query_width + self.latent_size, hidden)
        self.norm = place.full(1.0, self.latent.kv_rank)
        # Rows head by head, so that both forms read the same matrices.
        self.key_up = place.matrix(heads * self.latent.nope_dim, self.latent.kv_rank)
        self.value_up = place.matrix(heads * self.latent.value_dim, self.latent.kv_rank)
        self.output = place.matrix(hidden, heads * self.latent.value_dim)
        pages = place.random(num_pages, PAGE_SIZE, 1, self.latent_size)
        self.cache = PagedKV.latent(pages, self.latent.kv_rank)
        self.scale = self.key_size**-0.5

    def query_block(self, chunks: Sequence[tuple[int, int]]) -> int:
        """Rows of a query block of attention prefill for these (new, prefix) tokens."""
        cache = self.cache if is_absorbed(chunks) else self._expanded(self.cache.keys[:0, 0, 0])
        return attention.query_block(cache, chunks, self.spec.num_heads)

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """Queries `[R, H (nope + rope)]` and the latent with its shared part, side by side."""
        return x @ self.input.T

    def convolve(self, projected: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        """Nothing to do before attention."""
        return projected

    def prepare(self, projected: torch.Tensor, convolved: torch.Tensor, batch: StepBatch) -> Inputs:
        """Queries `[R, H, nope + rope]` and normed latents `[R, rank + rope]`, which are cached."""
        q, latents = projected.split([self.query_width, self.latent_size], dim=1)
        latents = pointwise.norm_latent(latents, self.norm)
        attention.write_rows(latents[:, None], self.cache.keys, batch.rows)
        return q.unflatten(1, (-1, self.key_size)), latents

    def mix(self, inputs: Inputs, batch: StepBatch) -> torch.Tensor:
        """Attention of all rows `[R, heads * value size]`."""
        cut, end = batch.shape.num_prefill_tokens, batch.shape.num_tokens
        q, latents = inputs
        out = q.new_empty(*q.shape[:2], self.latent.value_dim)
        if cut:
            prefill = self.absorbed if is_absorbed(batch.shape.chunks) else self.expanded
            prefill(q[:cut], latents[:cut], batch, out[:cut])
        if end > cut:
            found = attention.decode(
                self._absorb(q[cut:end]), self.cache, batch.decode_table, batch.lengths, self.scale
            )
            self._release(found, out[cut:end])
        return out.flatten(1)

    def absorbed(
        self, q: torch.Tensor, latents: torch.Tensor, batch: StepBatch, out: torch.Tensor
    ) -> None:
        """Prefill over latents; out `[T, H, value size]`."""
        keys = latents[:, None]
        found = attention.prefill(
            self._absorb(q), keys, keys[..., : self.latent.kv_rank], self.cache, batch.table,
            batch.work, self.scale,
        )  # fmt: skip
        self._release(found, out)

    def expanded(
        self, q: torch.Tensor, latents: torch.Tensor, batch: StepBatch, out: torch.Tensor
    ) -> None:
        """Prefill over keys and values of every head, those of the prefixes made again."""
        prefixes = self.cache.keys.view(-1, self.latent_size)[batch.prefix_rows.long()]
        keys, values = self._expand(latents)
        attention.prefill(
            q, keys, values, self._expanded(prefixes), batch.prefix_table, batch.work,
            self.scale, out=out,
        )  # fmt: skip

    def finish(self, mixed: torch.Tensor, projected: torch.Tensor) -> torch.Tensor:
        """Output projection `[R, hidden]`."""
        return mixed @ self.output.T

    def _absorb(self, q: torch.Tensor) -> torch.Tensor:
        """Queries in the latent space `[T, H, rank + rope]`."""
        rank, nope = self.latent.kv_rank, self.latent.nope_dim
        out = q.new_empty(*q.shape[:2], self.latent_size)
        up = self.key_up.view(-1, nope, rank)
        torch.bmm(q[..., :nope].transpose(0, 1), up, out=out[..., :rank].transpose(0, 1))
        out[..., rank:] = q[..., nope:]
        return out

    def _release(self, found: torch.Tensor, out: torch.Tensor) -> None:
        """out `[T, H, value size]`: values of what was found in the latent space."""
        up = self.value_up.view(-1, self.latent.value_dim, self.latent.kv_rank)
        torch.bmm(found.transpose(0, 1), up.transpose(1, 2), out=out.transpose(0, 1))

    def _expand(self, latents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys `[L, H, nope + rope]` and values `[L, H, value size]` of latents."""
        low, shared = latents.split([self.latent.kv_rank, self.latent.rope_dim], dim=1)
        keys = pointwise.join_keys(low @ self.key_up.T, shared, self.spec.num_heads)
        return keys, (low @ self.value_up.T).unflatten(1, (self.spec.num_heads, -1))

    def _expanded(self, latents: torch.Tensor) -> PagedKV:
        """Pages of keys and values, in the order of the latents `[pages * PAGE_SIZE, ...]`."""
        keys, values = (x.unflatten(0, (-1, PAGE_SIZE)) for x in self._expand(latents))
        return PagedKV(keys, values, self.latent.value_dim)
