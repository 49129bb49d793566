"""The weighted sum of a token's experts, with the shared part."""
# mypy: disallow-untyped-defs=False

import torch
import triton
import triton.language as tl

from hybridsim.kernels.launch import require


@triton.jit
def _combine_kernel(
    parts_ptr, weights_ptr, shared_ptr, gate_ptr, out_ptr, shared_stride, gate_stride,
    TOP: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    total = tl.zeros([BLOCK], dtype=tl.float32)
    if shared_ptr is not None:
        total = tl.load(shared_ptr + token * shared_stride + column, mask=inside, other=0.0)
        total = total.to(tl.float32)
        if gate_ptr is not None:
            total *= tl.sigmoid(tl.load(gate_ptr + token * gate_stride).to(tl.float32))
    for i in tl.static_range(TOP):
        part = parts_ptr + (token * TOP + i) * WIDTH + column
        weight = tl.load(weights_ptr + token * TOP + i)
        total += weight * tl.load(part, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * WIDTH + column, total.to(out_ptr.dtype.element_ty), mask=inside)


def combine(
    parts: torch.Tensor,
    weights: torch.Tensor,
    shared: torch.Tensor | None = None,
    gate: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """out `[T, hidden]`: sum over i of weights[t, i] * parts[t * k + i], plus the shared part.

    parts `[T * k, hidden]` contiguous, weights float32 `[T, k]`; shared `[T, hidden]` (token stride
    free) times sigmoid(gate `[T]`, stride free) where given.
    """
    num_tokens, num_active = weights.shape
    width = parts.shape[1]
    require(parts.shape[0] == num_tokens * num_active, "one part an assignment")
    require(parts.is_contiguous() and weights.is_contiguous(), "parts and weights contiguous")
    out = parts.new_empty(num_tokens, width) if out is None else out
    block = min(1024, triton.next_power_of_2(width))
    if num_tokens:
        _combine_kernel[(num_tokens, triton.cdiv(width, block))](
            parts, weights, shared, gate, out, 0 if shared is None else shared.stride(0),
            0 if gate is None else gate.stride(0), TOP=num_active, WIDTH=width, BLOCK=block,
        )  # fmt: skip
    return out
