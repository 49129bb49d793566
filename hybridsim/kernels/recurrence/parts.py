"""What the chunk form's first part hands to its second."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class LocalParts:
    """Per-token tensors of one layer; within a chunk, G is the log decay summed from its start.

    queries `[T, *, K]`: q, or q exp(G) when decay is per channel.
    keys `[T, *, K]`: k, or k exp(G_last - G) when decay is per channel.
    total `[T, H]` or `[T, H, K]` float32: G; None without decay.
    scores `[T, H, C]`: scale q_i k_j^T decayed from j to i at row i, column j, zero for j > i.
    reads `[T, H, K]`: w, what a token subtracts is w S; None for rules that do not read.
    writes `[T, H, V]`: u for the delta rule, else v.
    strength `[T, H]`: factor still to be put on `writes`, or None.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    total: torch.Tensor | None
    scores: torch.Tensor
    reads: torch.Tensor | None
    writes: torch.Tensor
    strength: torch.Tensor | None
