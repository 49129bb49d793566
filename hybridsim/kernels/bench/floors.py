"""What the card can do, measured in the same run as the kernels that are judged by it."""

from dataclasses import dataclass

import torch

from hybridsim.kernels.bench.timing import time_graph


@dataclass(frozen=True, slots=True)
class Floors:
    """copy: bytes read plus written a second; matmul: bf16 operations a second, random data."""

    copy_bytes_per_s: float
    matmul_flops_per_s: float

    def floor_s(self, num_bytes: int, num_flops: int) -> float:
        """No version runs much faster than the larger of its two floors."""
        return max(num_bytes / self.copy_bytes_per_s, num_flops / self.matmul_flops_per_s)


def measure_floors(device: str = "cuda") -> Floors:
    """Copy 2 GiB from device to device; multiply 8192 x 8192 matrices."""
    size = 2**31
    source = torch.randint(0, 127, (size,), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    # Two ways to copy, since the driver's own copy is not always the faster one.
    words, out_words = (x.view(torch.int32) for x in (source, target))
    copies = [
        time_graph([lambda: target.copy_(source)]),
        time_graph([lambda: torch.add(words, 0, out=out_words)]),
    ]
    copy_s = min(copy.median_s for copy in copies)
    n = 8192
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    matmul = time_graph([lambda: torch.mm(a, b, out=out)])
    return Floors(2 * size / copy_s, 2 * n**3 / matmul.median_s)
