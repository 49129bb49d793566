"""Small facts that every wrapper needs before it launches a kernel."""

from collections.abc import Sequence

import torch


def dot_precision(dtype: torch.dtype) -> str:
    """`input_precision` of a `tl.dot` on float32 operands derived from inputs of `dtype`.

    float32 inputs ask for float32 results; below that, tf32 is finer than the inputs are.
    """
    return "ieee" if dtype == torch.float32 else "tf32"


def num_multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of `device`; 1 on the CPU."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def require(condition: bool, message: str) -> None:
    """Raise ValueError with `message` unless `condition` holds: a caller's mistake."""
    if not condition:
        raise ValueError(message)


def require_rows(**tensors: torch.Tensor | None) -> None:
    """Raise ValueError unless each `[T, H, D]` has its heads and channels side by side, or is None.

    Kernels take the token stride from the tensor and the others for granted.
    """
    for name, x in tensors.items():
        require(x is None or x[:1].is_contiguous(), f"{name}: heads and channels not contiguous")


def output_of(out: torch.Tensor | None, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """`out`, or a new tensor of the type and device of `like` where there is none.

    ValueError unless it is contiguous and of this shape.
    """
    if out is None:
        return torch.empty(*shape, dtype=like.dtype, device=like.device)
    fits = out.is_contiguous() and [*out.shape] == [*shape]
    require(fits, f"out must be contiguous {[*shape]}")
    return out
