"""The truth of a mixture of experts: one token after another, in float64."""

from typing import Literal

import torch

Scoring = Literal["softmax", "sigmoid"]


def choose(
    scores: torch.Tensor, num_active: int, scoring: Scoring, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts `[T, k]` of every token, best first, and their weights `[T, k]`, which sum to 1.

    scores `[T, E]`. softmax: the k largest scores, weights their softmax (softmax over all experts
    and renormalised, as Qwen3-Next does, is the same). sigmoid: the k largest of
    sigmoid(score) + bias `[E]`, weights their sigmoids without the bias, renormalised (Kimi, after
    DeepSeek-V3; its constant factor on the sum is left out).
    """
    scores = scores.double()
    rank = scores if scoring == "softmax" else torch.sigmoid(scores)
    weight = scores.exp() if scoring == "softmax" else rank
    if bias is not None:
        rank = rank + bias.double()
    experts = rank.topk(num_active, dim=1).indices
    chosen = weight.gather(1, experts)
    return experts, chosen / chosen.sum(dim=1, keepdim=True)


def mixture(
    x: torch.Tensor,
    experts: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    shared: torch.Tensor | None = None,
    shared_gate: torch.Tensor | None = None,
) -> torch.Tensor:
    """Sum over a token's experts of weight * (silu(gate) * up) down, plus the shared part.

    x `[T, hidden]`, experts and weights `[T, k]`, gate_up `[E, 2 I, hidden]`, down
    `[E, hidden, I]`, shared `[T, hidden]` times sigmoid(shared_gate `[T]`) where given.
    """
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for token in range(x.shape[0]):
        for expert, weight in zip(experts[token].tolist(), weights[token], strict=True):
            gate, up = (gate_up[expert].double() @ x[token].double()).chunk(2)
            inner = gate * torch.sigmoid(gate) * up
            out[token] += weight.double() * (down[expert].double() @ inner)
    if shared is not None:
        factor = 1.0 if shared_gate is None else torch.sigmoid(shared_gate.double())[:, None]
        out += factor * shared.double()
    return out
