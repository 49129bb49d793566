"""The byte and FLOP formulas of the Marconi artifact (MLSys'25, arXiv 2411.19379).

They differ from ModelSpec's counts on purpose: scores without the causal half, a state of d x n.
Marconi's eviction score is made of these.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class MarconiFormulas:
    """A model of `width` d and `state` n. FLOPs are per layer, for l tokens; bytes for fp16."""

    width: int = 4096
    state: int = 128
    num_ssm: int = 24
    num_attention: int = 4
    num_mlp: int = 28

    def attention_flops(self, num_tokens: int) -> int:
        return 8 * num_tokens * self.width**2 + 4 * num_tokens**2 * self.width

    def mlp_flops(self, num_tokens: int) -> int:
        return 16 * num_tokens * self.width**2

    def ssm_flops(self, num_tokens: int) -> int:
        per_token = 12 * self.width**2 + 16 * self.width * self.state + 10 * self.width
        return num_tokens * per_token

    @property
    def kv_bytes_per_token(self) -> int:
        """kappa: keys and values of all attention layers."""
        return 4 * self.width * self.num_attention

    @property
    def state_bytes(self) -> int:
        """sigma: a checkpoint of all SSM layers, with 4 inputs of 2 d + 2 n channels kept."""
        window = 8 * (2 * self.width + 2 * self.state)
        return self.num_ssm * (2 * self.width * self.state + window)

    def prefill_flops(self, num_tokens: int) -> int:
        """FLOPs of all layers for `num_tokens` tokens from the start."""
        return (
            self.num_ssm * self.ssm_flops(num_tokens)
            + self.num_attention * self.attention_flops(num_tokens)
            + self.num_mlp * self.mlp_flops(num_tokens)
        )

    def saved_flops(self, num_tokens: int, num_parent_tokens: int) -> int:
        """FLOPs that a node at `num_tokens` saves over its parent: linear in the edge for SSM
        layers, a difference of prefixes for the others.
        """
        edge = num_tokens - num_parent_tokens
        attention = self.attention_flops(num_tokens) - self.attention_flops(num_parent_tokens)
        mlp = self.mlp_flops(num_tokens) - self.mlp_flops(num_parent_tokens)
        return (
            self.num_ssm * self.ssm_flops(edge)
            + self.num_attention * attention
            + self.num_mlp * mlp
        )

    def flops_per_byte(self, num_tokens: int, num_parent_tokens: int) -> float:
        """E(v): saved FLOPs over the bytes of the state and of the whole prefix's KV."""
        size_bytes = self.state_bytes + self.kv_bytes_per_token * num_tokens
        return self.saved_flops(num_tokens, num_parent_tokens) / size_bytes
