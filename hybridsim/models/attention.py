"""Softmax attention: grouped query heads, one latent for all heads, sliding windows."""

from dataclasses import dataclass, replace

from hybridsim.models.dtypes import Dtypes, num_bytes
from hybridsim.models.split import split_heads, split_shared


@dataclass(frozen=True)
class LatentSpec:
    """Multi-head latent attention: one vector of `kv_rank + rope_dim` a token for all heads.

    A head's key has nope_dim + rope_dim elements, its value value_dim. q_rank: width of the query's
    own bottleneck, None when queries are projected at once.
    """

    kv_rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    q_rank: int | None = None


@dataclass(frozen=True)
class AttentionSpec:
    """One attention layer: full, or limited to the last `window` tokens.

    num_kv_heads == num_heads is multi-head, 1 is multi-query. With `latent` the head dimensions
    are the latent's and num_kv_heads counts nothing. output_gate: the query projection also makes
    a gate for the output. qk_norm: norms over each query and key head. qkv_bias: biases.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None
    latent: LatentSpec | None = None
    output_gate: bool = False
    qk_norm: bool = False
    qkv_bias: bool = False

    @property
    def kind(self) -> str:
        name = "mla" if self.latent else "mqa" if self.num_kv_heads == 1 else "gqa"
        name = "mha" if name == "gqa" and self.num_kv_heads == self.num_heads else name
        return name if self.window is None else f"{name} window {self.window}"

    @property
    def kv_elements_per_token(self) -> int:
        if self.latent:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.num_kv_heads * self.head_dim

    def kv_bytes_per_token(self, dtypes: Dtypes) -> int:
        """Bytes of one token's keys and values (or latent) in this layer, scales included."""
        num_scales = 1 if self.latent else 2 * self.num_kv_heads
        return num_bytes(self.kv_elements_per_token, dtypes.kv) + num_scales * dtypes.kv_scale_bytes

    def num_visible(self, context_tokens: int) -> int:
        """Keys that one new token attends to after `context_tokens` earlier ones, itself too."""
        visible = context_tokens + 1
        return visible if self.window is None else min(visible, self.window)

    def num_pairs(self, num_tokens: int, num_prefix_tokens: int) -> int:
        """Query-key pairs of `num_tokens` new tokens after a prefix, under the causal mask."""
        if self.window is None:
            return num_tokens * num_prefix_tokens + num_tokens * (num_tokens + 1) // 2
        # The first `rising` queries still see all that is before them, the rest see `window` keys.
        rising = min(max(self.window - num_prefix_tokens, 0), num_tokens)
        seen = rising * num_prefix_tokens + rising * (rising + 1) // 2
        return seen + (num_tokens - rising) * self.window

    def prefill_flops(self, num_tokens: int, num_prefix_tokens: int) -> int:
        """Scores and weighted values (2 FLOPs a multiply-add), projections not counted.

        A latent is expanded to per-head keys and values for prefill; that of the new tokens is
        among the projections, that of the prefix is counted here.
        """
        pairs = self.num_pairs(num_tokens, num_prefix_tokens)
        if self.latent is None:
            return 4 * pairs * self.num_heads * self.head_dim
        latent = self.latent
        expand = latent.kv_rank * self.num_heads * (latent.nope_dim + latent.value_dim)
        width = latent.nope_dim + latent.rope_dim + latent.value_dim
        read = num_prefix_tokens if self.window is None else min(num_prefix_tokens, self.window)
        return 2 * pairs * self.num_heads * width + 2 * read * expand

    def decode_flops_per_key(self) -> int:
        """FLOPs of one new token for each key it attends to; latents are used unexpanded."""
        if self.latent is None:
            return 4 * self.num_heads * self.head_dim
        return 2 * self.num_heads * (2 * self.latent.kv_rank + self.latent.rope_dim)

    @property
    def io_elements_per_token(self) -> int:
        """Query and output elements a token: what the kernel moves besides KV."""
        if self.latent is None:
            return 2 * self.num_heads * self.head_dim
        latent = self.latent
        return self.num_heads * (latent.nope_dim + latent.rope_dim + latent.value_dim)

    def matmul_params(self, hidden: int) -> int:
        """Weights used in matrix products, once a token each."""
        if self.latent:
            return self._latent_matmul_params(hidden, self.latent)
        query_width = self.num_heads * self.head_dim
        in_width = query_width * (2 if self.output_gate else 1) + self.kv_elements_per_token
        return hidden * (in_width + query_width)

    def _latent_matmul_params(self, hidden: int, latent: LatentSpec) -> int:
        heads = self.num_heads
        query_width = heads * (latent.nope_dim + latent.rope_dim)
        query = (
            hidden * query_width
            if latent.q_rank is None
            else latent.q_rank * (hidden + query_width)
        )
        down = hidden * (latent.kv_rank + latent.rope_dim)
        up = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
        gate = hidden * heads * latent.value_dim if self.output_gate else 0
        return query + down + up + gate + heads * latent.value_dim * hidden

    def other_params(self, hidden: int) -> int:
        """Norms and biases inside the layer."""
        if self.latent:
            return self.latent.kv_rank + (self.latent.q_rank or 0)
        norms = 2 * self.head_dim if self.qk_norm else 0
        gates = 2 if self.output_gate else 1
        width = gates * self.num_heads * self.head_dim + self.kv_elements_per_token
        return norms + (width if self.qkv_bias else 0)

    def for_rank(self, tp: int) -> "AttentionSpec":
        """One rank's share: heads are split, KV heads replicate beyond one a rank."""
        return replace(
            self,
            num_heads=split_heads(self.num_heads, tp, "attention heads"),
            num_kv_heads=split_shared(self.num_kv_heads, tp, "KV heads"),
        )
