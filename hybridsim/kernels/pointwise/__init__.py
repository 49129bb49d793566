"""Norms, gates and rotary embedding: what lies between the matrix products of a hybrid layer."""

from hybridsim.kernels.pointwise.channel_gates import channel_inputs
from hybridsim.kernels.pointwise.fused import (
    add_norm,
    delta_inputs,
    gated_norm,
    norm_rotate,
    sigmoid_gate,
    silu_mul,
)
from hybridsim.kernels.pointwise.latent import join_keys, norm_latent

__all__ = [
    "add_norm", "channel_inputs", "delta_inputs", "gated_norm", "join_keys", "norm_latent",
    "norm_rotate", "sigmoid_gate", "silu_mul",
]  # fmt: skip
