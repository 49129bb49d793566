"""Norms, gates and rotary embedding: what lies between the matrix products of a hybrid layer."""

from hybridsim.kernels.pointwise.fused import (
    add_norm,
    delta_inputs,
    gated_norm,
    norm_rotate,
    sigmoid_gate,
    silu_mul,
)

__all__ = [
    "add_norm", "delta_inputs", "gated_norm", "norm_rotate", "sigmoid_gate", "silu_mul",
]  # fmt: skip
