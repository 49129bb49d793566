"""The chunked form: prefill of packed sequences with states read from and saved to slots."""

import torch

from hybridsim.kernels.launch import output_of, require
from hybridsim.kernels.plan import PackedPlan
from hybridsim.kernels.recurrence.chunk_channel import chunk_channel
from hybridsim.kernels.recurrence.chunk_local import chunk_local
from hybridsim.kernels.recurrence.chunk_scan import chunk_scan
from hybridsim.kernels.recurrence.recurrent import check_inputs
from hybridsim.kernels.recurrence.rules import Rule

CHUNK_SIZE = 64


def prefill(
    rule: Rule,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    log_decay: torch.Tensor | None,
    strength: torch.Tensor | None,
    states: torch.Tensor,
    plan: PackedPlan,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs `[T, H, V]` of packed sequences; states named by `plan` are read and saved.

    q, k `[T, Hk, K]`, v `[T, H, V]` (bfloat16, float16 or float32; heads and channels contiguous,
    token stride free; K a power of two, at least 16); log_decay `[T, H]`, `[T, H, K]` or None and
    strength `[T, H]` or None, contiguous, as `rule` says; states `[slots, H, K, V]` float32 or
    bfloat16, changed in place. Slots written by one sequence must not be read by another.
    The chunk size is the plan's: 16, 32, 64 or, unless decay is per channel, 128. At 256 one
    chunk's scores alone, 256 KiB in float32, would fill a multiprocessor's registers.
    """
    check_inputs(rule, q, k, v, log_decay, strength, states)
    require(plan.num_tokens == v.shape[0], f"plan has {plan.num_tokens} tokens, v {v.shape[0]}")
    check_chunk_size(rule, plan.chunk_size, k.shape[2], k.is_cuda and k.dtype != torch.float32)
    out = output_of(out, v.shape, v)
    if plan.num_sequences == 0:
        return out
    if rule.decay == "channel":
        assert log_decay is not None
        assert strength is not None
        parts = chunk_channel(q, k, v, log_decay, strength, plan, scale)
    else:
        parts = chunk_local(rule, q, k, v, log_decay, strength, plan, scale)
    chunk_scan(parts, states, plan, scale, out)
    return out


def check_chunk_size(rule: Rule, size: int, key_size: int, is_half_on_gpu: bool) -> None:
    """ValueError where the kernels cannot work, or were seen to be wrong, in chunks of `size`."""
    require(size in (16, 32, 64, 128), f"chunk size {size}; allowed: 16, 32, 64, 128")
    # The reason is in `local_block`; the same product has K columns.
    require(size <= 32 or key_size >= 32, "chunks of 64 and more need keys of at least 32 channels")
    if rule.decay == "channel":
        require(size <= 64, f"chunk size {size} with decay per channel; allowed: at most 64")
        # Wrong results on an H200 (Triton 3.6) with 32 channels; only 128 were found right there.
        is_unproven = size == 64 and is_half_on_gpu and key_size < 128
        require(
            not is_unproven,
            f"chunks of 64 with decay per channel and {key_size} half-precision channels on a GPU; "
            "allowed: at least 128 channels, or chunks of at most 32",
        )
