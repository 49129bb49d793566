"""Mixture of experts: routing to the best few, grouped matrix products, weighted sum.

`naive.choose` and `naive.mixture` are the truth; `route`, `gate_up`, `down`, `combine` one launch
each.
"""

from hybridsim.kernels.experts.combine import combine
from hybridsim.kernels.experts.grouped import Tile, down, gate_up
from hybridsim.kernels.experts.route import Routing, route

__all__ = ["Routing", "Tile", "combine", "down", "gate_up", "route"]
