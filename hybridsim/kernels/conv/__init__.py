"""Short causal convolution (the one before every recurrence), prefill and decode."""

from hybridsim.kernels.conv.causal_conv import decode, prefill

__all__ = ["decode", "prefill"]
