"""Step times: chunks in, seconds out. `get_cost_model` is the way in."""

from hybridsim.cost.base import CostModel, PrefillChunk
from hybridsim.cost.efficiency import Efficiency
from hybridsim.cost.gpus import GPUS, Gpu
from hybridsim.cost.infinite import InfiniteCost
from hybridsim.cost.load import COST_MODELS, get_cost_model, gpu_memory_bytes, price_files
from hybridsim.cost.roofline import RooflineCost

__all__ = [
    "COST_MODELS", "GPUS", "CostModel", "Efficiency", "Gpu", "InfiniteCost", "PrefillChunk",
    "RooflineCost", "get_cost_model", "gpu_memory_bytes", "price_files",
]  # fmt: skip
