"""Routing: every token's best experts, and the rows of every expert, in one launch."""
# mypy: disallow-untyped-defs=False

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from hybridsim.kernels.experts.naive import Scoring
from hybridsim.kernels.launch import require


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """Where T tokens go; token t's i-th choice is assignment t * k + i.

    experts int32 `[T, k]`, best first; weights float32 `[T, k]`, summing to 1 a token. counts int32
    `[E]`: assignments of every expert; rows int32 `[E, T]`: which, in any order, the first
    counts[e] of row e written.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    counts: torch.Tensor
    rows: torch.Tensor

    @property
    def num_active(self) -> int:
        return self.experts.shape[1]


@triton.jit(do_not_specialize=["num_tokens"])
def _route_kernel(
    scores_ptr, bias_ptr, experts_ptr, weights_ptr, counts_ptr, rows_ptr,
    scores_stride, num_tokens,
    E: tl.constexpr, BLOCK_E: tl.constexpr, K: tl.constexpr, BLOCK_K: tl.constexpr,
    SIGMOID: tl.constexpr,
):  # fmt: skip
    """Program (token): the K best, one after another; a place among each expert's rows."""
    token = tl.program_id(0)
    expert = tl.arange(0, BLOCK_E)
    inside = expert < E
    scores_row = scores_ptr + token.to(tl.int64) * scores_stride
    score = tl.load(scores_row + expert, mask=inside, other=float("-inf")).to(tl.float32)
    if SIGMOID:
        score = tl.where(inside, tl.sigmoid(score), float("-inf"))
    rank = score
    if bias_ptr is not None:
        rank += tl.load(bias_ptr + expert, mask=inside, other=0.0).to(tl.float32)
    choice = tl.arange(0, BLOCK_K)
    chosen = tl.zeros([BLOCK_K], dtype=tl.int32)
    value = tl.zeros([BLOCK_K], dtype=tl.float32)
    for i in tl.static_range(K):
        best = tl.argmax(rank, axis=0)
        chosen = tl.where(choice == i, best, chosen)
        of_best = tl.sum(tl.where(expert == best, score, 0.0), axis=0)
        value = tl.where(choice == i, of_best, value)
        rank = tl.where(expert == best, float("-inf"), rank)
    is_choice = choice < K
    if not SIGMOID:
        value = tl.exp(value - tl.max(tl.where(is_choice, value, float("-inf")), axis=0))
    value = tl.where(is_choice, value, 0.0)
    value /= tl.sum(value, axis=0)
    assignment = token * K + choice
    tl.store(experts_ptr + assignment, chosen, mask=is_choice)
    tl.store(weights_ptr + assignment, value, mask=is_choice)
    place = tl.atomic_add(counts_ptr + chosen, 1, mask=is_choice, sem="relaxed")
    row = chosen.to(tl.int64) * num_tokens + place
    tl.store(rows_ptr + row, assignment, mask=is_choice)


def route(
    scores: torch.Tensor, num_active: int, scoring: Scoring, bias: torch.Tensor | None = None
) -> Routing:
    """The `num_active` best experts of every token by `scores` `[T, E]` (token stride free).

    Scoring and bias `[E]` as in `naive.choose`. Which tokens an expert gets is the same in every
    run; in which order it has them is not.
    """
    num_tokens, num_experts = scores.shape
    require(1 <= num_active <= num_experts, f"{num_active} of {num_experts} experts a token")
    device = scores.device
    experts = torch.empty(num_tokens, num_active, dtype=torch.int32, device=device)
    weights = torch.empty(num_tokens, num_active, dtype=torch.float32, device=device)
    counts = torch.zeros(num_experts, dtype=torch.int32, device=device)
    rows = torch.empty(num_experts, num_tokens, dtype=torch.int32, device=device)
    if num_tokens:
        _route_kernel[(num_tokens,)](
            scores, bias, experts, weights, counts, rows, scores.stride(0), num_tokens,
            E=num_experts, BLOCK_E=triton.next_power_of_2(num_experts), K=num_active,
            BLOCK_K=triton.next_power_of_2(num_active), SIGMOID=scoring == "sigmoid", num_warps=1,
        )  # fmt: skip
    return Routing(experts, weights, counts, rows)
