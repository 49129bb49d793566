"""vLLM 0.33.0 and 0.27.1: the decisions of their schedulers and cache managers, step by step."""

from hybridsim.engines.vllm.engine import VLLMEngine
from hybridsim.engines.vllm.geometry import geometry_of
from hybridsim.engines.vllm.layout import Geometry, Layout, build_layout, check_startup
from hybridsim.engines.vllm.options import VLLMOptions

__all__ = [
    "Geometry",
    "Layout",
    "VLLMEngine",
    "VLLMOptions",
    "build_layout",
    "check_startup",
    "geometry_of",
]
