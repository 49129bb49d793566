"""Feed-forward parts: a dense gated MLP, and a mixture of experts beside a shared MLP."""

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


class Moe:
    """Router, shared MLP and routed experts of one layer.

    The router also makes the gate of the shared part, as its last output, where the model has one.
    A correction bias of the router goes with sigmoid scores (as in DeepSeek-V3 and Kimi).
    """

    def __init__(self, spec: MoeSpec, hidden: int, weights: ExpertWeights, place: Place) -> None:
        self.spec, self.weights = spec, weights
        self.router = place.matrix(spec.num_experts + spec.shared_gate, hidden)
        self.shared = Mlp(spec.shared_intermediate, hidden, place)
        self.bias = place.full(0.0, spec.num_experts) if spec.router_bias else None
        self.scoring: Scoring = "sigmoid" if spec.router_bias else "softmax"

    def dense(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What every token passes: the shared part `[T, hidden]`, and logits of the router."""
        return self.shared(x), x @ self.router.T

    def routed(
        self,
        x: torch.Tensor,
        logits: torch.Tensor,
        shared: torch.Tensor,
        scores: torch.Tensor | None,
    ) -> torch.Tensor:
        """The experts' sum and the shared part `[T, hidden]`.

        scores `[T, E]` stand in for the router's own: with random weights those favour some
        experts more than a trained router does.
        """
        count = self.spec.num_experts
        own = logits[:, :count] if scores is None else scores
        routing = experts.route(own, self.spec.num_active, self.scoring, self.bias)
        inner = experts.gate_up(x, self.weights.gate_up, routing)
        parts = experts.down(inner, self.weights.down, routing)
        gate = logits[:, count] if self.spec.shared_gate else None
        return experts.combine(parts, routing.weights, shared, gate)


Ffn = Mlp | Moe


def check_ffn(spec: MlpSpec | MoeSpec | None) -> None:
    """Raise ValueError for feed-forward parts that no class here computes."""
    if spec is None or not spec.gated:
        raise ValueError("layers need a gated feed-forward part")
    if isinstance(spec, MoeSpec) and not spec.shared_intermediate:
        raise ValueError("experts need a shared part beside them")
