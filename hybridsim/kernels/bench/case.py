"""One row of the table: an operator at one shape, its floor, and the versions to time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hybridsim.kernels.bench.timing import Call

# seed -> a call on inputs drawn from that seed; the call returns its output
MakeCall = Callable[[int], Call]


@dataclass(frozen=True, slots=True)
class Case:
    """`num_bytes`: least traffic (inputs read once, outputs written once); `num_flops` likewise.

    versions: name -> maker; "ours" first, rivals after it. All get the same inputs for one seed.
    rotate: input sets to rotate through. target: what is aimed at, as (kind, value), where kind is
    `floor` (share of the floor's speed at least) or a rival's name (ours over rival at most).
    """

    op: str
    shape: dict[str, int]
    num_bytes: int
    num_flops: int
    versions: dict[str, MakeCall]
    rotate: int
    target: tuple[str, float] | None = None
    tolerance: float = 1e-2

    @property
    def label(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.shape.items())


def disagreement(case: Case) -> float:
    """Largest relative difference between a rival's output and ours on the same inputs."""
    results = {name: make(0)() for name, make in case.versions.items()}
    ours = results["ours"]
    assert isinstance(ours, torch.Tensor)
    worst = 0.0
    for result in results.values():
        assert isinstance(result, torch.Tensor)
        gap = (result.double() - ours.double()).norm() / ours.double().norm()
        worst = max(worst, float(gap) if gap == gap else float("inf"))
    return worst


def random_normal(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Standard normal numbers on the GPU; the same for the same seed and shape."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).to(dtype)


def permutation(length: int, seed: int) -> torch.Tensor:
    """Indices 0 .. length - 1 in random order, int32, on the GPU; the same for the same seed."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randperm(length, generator=generator, device="cuda").int()
