"""GPUs by name: peak rates and memory, from the vendors' data sheets."""

from dataclasses import dataclass

_GIB = 2**30


@dataclass(frozen=True)
class Gpu:
    """Peak rates of one GPU.

    flops_per_s: dense bf16 matrix products with fp32 sums (no sparsity). fp8_flops_per_s: dense
    fp8, None where the hardware has none. hbm_bytes_per_s: device memory. memory_bytes: nominal,
    the driver shows a little less. link_bytes_per_s: to other GPUs of the host in one direction.
    """

    name: str
    flops_per_s: float
    hbm_bytes_per_s: float
    memory_bytes: int
    link_bytes_per_s: float | None = None
    fp8_flops_per_s: float | None = None
    source: str = "given"


GPUS: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        Gpu("h200", 989.4e12, 4.8e12, 141 * _GIB, 450e9, 1978.9e12, "NVIDIA H200 data sheet (SXM)"),
        Gpu("h100", 989.4e12, 3.35e12, 80 * _GIB, 450e9, 1978.9e12, "NVIDIA H100 data sheet (SXM)"),
        Gpu("h100-pcie", 756.5e12, 2.0e12, 80 * _GIB, 64e9, 1513e12, "NVIDIA H100 data sheet"),
        Gpu("h20", 148e12, 4.0e12, 96 * _GIB, 450e9, 296e12, "NVIDIA H20 product brief"),
        Gpu("a100", 312e12, 2.039e12, 80 * _GIB, 300e9, None, "NVIDIA A100 80GB data sheet (SXM)"),
        Gpu("b200", 2.25e15, 8.0e12, 180 * _GIB, 900e9, 4.5e15, "NVIDIA DGX B200 data sheet, / 8"),
        Gpu("l40s", 362.05e12, 864e9, 48 * _GIB, 32e9, 733e12, "NVIDIA L40S data sheet"),
        Gpu("l4", 121e12, 300e9, 24 * _GIB, 32e9, 242e12, "NVIDIA L4 data sheet, half of sparse"),
        Gpu("rtx-4090", 165.2e12, 1008e9, 24 * _GIB, 32e9, 330.3e12, "NVIDIA Ada white paper"),
        Gpu("rtx-3090", 71e12, 936e9, 24 * _GIB, 32e9, None, "NVIDIA Ampere GA102 white paper"),
        Gpu("mi300x", 1307.4e12, 5.3e12, 192 * _GIB, 448e9, 2614.9e12, "AMD MI300X data sheet"),
    )
}
