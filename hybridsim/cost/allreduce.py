"""All-reduces between tensor-parallel ranks: a formula, since one GPU cannot measure them."""

from dataclasses import dataclass

from hybridsim.cost.efficiency import Efficiency
from hybridsim.models import ModelSpec


@dataclass(frozen=True, slots=True)
class Allreduce:
    """The all-reduces of a step: one of a hidden vector a token after every mixer and FFN.

    link_bytes_per_s: what a rank sends to the next in one direction, as far as it is attained.
    latency_s: of one all-reduce, whatever its size.
    """

    tp: int
    hidden_bytes: int
    num_sublayers: int
    link_bytes_per_s: float
    latency_s: float

    def step_s(self, num_tokens: int) -> float:
        """A ring: every rank sends and receives 2 (tp - 1) / tp of the data, once a sublayer."""
        if self.tp == 1 or not num_tokens:
            return 0.0
        moved_bytes = num_tokens * self.hidden_bytes * 2 * (self.tp - 1) / self.tp
        return self.num_sublayers * (moved_bytes / self.link_bytes_per_s + self.latency_s)

    def note(self) -> str:
        """A sentence for a run's record."""
        return (
            f"all-reduces of tp {self.tp} are a formula, not measured: "
            f"{self.link_bytes_per_s / 1e9:.0f} GB/s and {self.latency_s * 1e6:.0f} us each"
        )


def allreduce_of(rank: ModelSpec, link_bytes_per_s: float, efficiency: Efficiency) -> Allreduce:
    """Of one rank of a model, over a link of that peak rate."""
    return Allreduce(
        rank.tp,
        rank.dtypes.activation_bytes * rank.hidden,
        sum(layer.num_norms for layer in rank.layers),
        link_bytes_per_s * efficiency.link,
        efficiency.allreduce_latency_s,
    )
