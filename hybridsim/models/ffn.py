"""Feed-forward layers: dense and mixture of experts."""

from dataclasses import dataclass, replace

from hybridsim.models.split import split_heads


@dataclass(frozen=True)
class MlpSpec:
    """Two matrices, or three when `gated` (SwiGLU and kin)."""

    intermediate: int
    gated: bool = True

    def matmul_params(self, hidden: int) -> int:
        return (3 if self.gated else 2) * hidden * self.intermediate

    active_matmul_params = matmul_params

    def other_params(self, hidden: int) -> int:
        return 0

    def for_rank(self, tp: int) -> "MlpSpec":
        return replace(self, intermediate=split_heads(self.intermediate, tp, "FFN channels"))


@dataclass(frozen=True)
class MoeSpec:
    """A router over `num_experts` equal experts, `num_active` of them a token, and a shared part.

    shared_intermediate: width of the shared experts together, 0 without. shared_gate: one more
    hidden-sized weight that scales the shared part. router_bias: one correction per expert.
    """

    num_experts: int
    num_active: int
    intermediate: int
    shared_intermediate: int = 0
    gated: bool = True
    shared_gate: bool = False
    router_bias: bool = False

    def expert_params(self, hidden: int) -> int:
        """Weights of one routed expert."""
        return MlpSpec(self.intermediate, self.gated).matmul_params(hidden)

    def dense_matmul_params(self, hidden: int) -> int:
        """Router, shared experts and their gate: used by every token."""
        shared = MlpSpec(self.shared_intermediate, self.gated).matmul_params(hidden)
        return shared + hidden * (self.num_experts + self.shared_gate)

    def matmul_params(self, hidden: int) -> int:
        return self.dense_matmul_params(hidden) + self.num_experts * self.expert_params(hidden)

    def active_matmul_params(self, hidden: int) -> int:
        """Weights that one token passes through."""
        return self.dense_matmul_params(hidden) + self.num_active * self.expert_params(hidden)

    def other_params(self, hidden: int) -> int:
        return self.num_experts if self.router_bias else 0

    def num_touched_experts(self, num_tokens: int) -> float:
        """Expected distinct experts of `num_tokens` tokens that choose uniformly and independently.

        E (1 - (1 - k/E)^n): each token leaves a given expert out with probability 1 - k/E.
        """
        missed: float = (1 - self.num_active / self.num_experts) ** num_tokens
        return self.num_experts * (1 - missed)

    def for_rank(self, tp: int) -> "MoeSpec":
        """Every expert's width is split (tensor parallel, not expert parallel)."""
        return replace(
            self,
            intermediate=split_heads(self.intermediate, tp, "expert channels"),
            shared_intermediate=split_heads(self.shared_intermediate, tp, "shared expert channels"),
        )
