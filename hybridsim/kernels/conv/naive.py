"""The truth of the short causal convolution: per channel, token by token, in float64."""

import torch


def causal_conv(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    initial: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and state of one sequence, SiLU applied.

    x `[T, D]`, weight `[D, W]` (weight[:, -1] meets the current token), bias `[D]` or None, initial
    `[W - 1, D]`: the last inputs before the sequence, oldest first; None for zeros.
    Returns y `[T, D]` and states `[T + 1, W - 1, D]`, states[t] what a continuation after t tokens
    starts from.
    """
    width = weight.shape[1]
    if initial is None:
        initial = x.new_zeros(width - 1, x.shape[1])
    padded = torch.cat([initial.to(dtype), x.to(dtype)])
    y = torch.zeros(x.shape, dtype=dtype, device=x.device)
    for tap in range(width):
        y = y + padded[tap : tap + x.shape[0]] * weight[:, tap].to(dtype)
    if bias is not None:
        y = y + bias.to(dtype)
    states = torch.stack([padded[t : t + width - 1] for t in range(x.shape[0] + 1)])
    return y * torch.sigmoid(y), states
