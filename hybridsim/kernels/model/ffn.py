"""Feed-forward parts: a dense gated MLP, and a mixture of experts beside a shared MLP."""

from typing import NamedTuple

import torch

from hybridsim.kernels import experts, pointwise
from hybridsim.kernels.experts.naive import Scoring
from hybridsim.kernels.model.place import Place
from hybridsim.models import MlpSpec, MoeSpec


class Mlp:
    """silu(gate) * up, then down."""

    def __init__(self, width: int, hidden: int, place: Place) -> None:
        self.gate_up = place.matrix(2 * width, hidden)
        self.down = place.matrix(hidden, width)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`[T, hidden]` to `[T, hidden]`."""
        return pointwise.silu_mul(x @ self.gate_up.T) @ self.down.T


class ExpertWeights:
    """Matrices of one layer's experts: gate_up `[E, 2 I, hidden]`, down `[E, hidden, I]`."""

    def __init__(self, spec: MoeSpec, hidden: int, place: Place) -> None:
        self.gate_up = place.matrix(spec.num_experts, 2 * spec.intermediate, hidden)
        self.down = place.matrix(spec.num_experts, hidden, spec.intermediate)


class DenseParts(NamedTuple):
    """What an expert layer computes for every token, whichever experts it chooses.

    shared: the shared MLP's output `[T, hidden]`; logits: of the router `[T, E]`; gate `[T]`: of
    the shared part before its sigmoid, None where it has none.
    """

    shared: torch.Tensor
    logits: torch.Tensor
    gate: torch.Tensor | None

    def first(self, count: int) -> "DenseParts":
        """Those of the first `count` tokens."""
        gate = None if self.gate is None else self.gate[:count]
        return DenseParts(self.shared[:count], self.logits[:count], gate)


class Moe:
    """Router, shared MLP and routed experts of one layer.

    The shared part's gate is a product of its own, as in engines: one more column would make the
    router's width odd (513), for which matrix libraries have slow kernels only.
    A correction bias of the router goes with sigmoid scores (as in DeepSeek-V3 and Kimi).
    """

    def __init__(self, spec: MoeSpec, hidden: int, weights: ExpertWeights, place: Place) -> None:
        self.spec, self.weights = spec, weights
        self.router = place.matrix(spec.num_experts, hidden)
        self.shared_gate = place.matrix(1, hidden) if spec.shared_gate else None
        self.shared = Mlp(spec.shared_intermediate, hidden, place)
        self.bias = place.full(0.0, spec.num_experts) if spec.router_bias else None
        self.scoring: Scoring = "sigmoid" if spec.router_bias else "softmax"

    def dense(self, x: torch.Tensor) -> DenseParts:
        """What every token `[T, hidden]` passes."""
        gate = None if self.shared_gate is None else (x @ self.shared_gate.T)[:, 0]
        return DenseParts(self.shared(x), x @ self.router.T, gate)

    def routed(
        self, x: torch.Tensor, dense: DenseParts, scores: torch.Tensor | None
    ) -> torch.Tensor:
        """The experts' sum and the shared part `[T, hidden]`.

        scores `[T, E]` stand in for the router's own: with random weights those favour some
        experts more than a trained router does.
        """
        own = dense.logits if scores is None else scores
        routing = experts.route(own, self.spec.num_active, self.scoring, self.bias)
        inner = experts.gate_up(x, self.weights.gate_up, routing)
        parts = experts.down(inner, self.weights.down, routing)
        return experts.combine(parts, routing.weights, dense.shared, dense.gate)


Ffn = Mlp | Moe


def check_ffn(spec: MlpSpec | MoeSpec | None) -> None:
    """Raise ValueError for feed-forward parts that no class here computes."""
    if spec is None or not spec.gated:
        raise ValueError("layers need a gated feed-forward part")
    if isinstance(spec, MoeSpec) and not spec.shared_intermediate:
        raise ValueError("experts need a shared part beside them")
