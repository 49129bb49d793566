"""Where a model's tensors live, and random ones to fill it with."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Place:
    """A device and the 16-bit type of weights and activations."""

    device: str = "cuda"
    dtype: torch.dtype = torch.bfloat16

    def matrix(self, *shape: int) -> torch.Tensor:
        """Weights `[..., out, in]` that keep activations near 1."""
        return self.empty(*shape).normal_(0, shape[-1] ** -0.5)

    def random(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Normal numbers."""
        return self.empty(*shape).normal_(0, scale)

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(*shape, device=self.device, dtype=self.dtype)

    def full(self, value: float, *shape: int) -> torch.Tensor:
        """float32, as norms and gates keep their vectors."""
        return torch.full(shape, value, device=self.device)
