"""How much of a GPU's peak rates kernels attain, class by class; the shipped shares are measured.

`ceilings.json` is written by `python -m hybridsim.cost.ceilings` from measured profiles. The same
shares of peak are taken for every GPU: what is known of one card, assumed for the others.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

# The parts of a step, one class of kernels each.
MATMUL, POINTWISE, HEAD, EXPERTS = "matmul", "pointwise", "head", "experts"
ATTENTION_PREFILL, ATTENTION_PREFIX = "attention_prefill", "attention_prefix"
ATTENTION_DECODE = "attention_decode"
SCAN_PREFILL, SCAN_DECODE, COPY = "scan_prefill", "scan_decode", "copy"
CLASSES = (
    MATMUL, POINTWISE, HEAD, EXPERTS, ATTENTION_PREFILL, ATTENTION_PREFIX, ATTENTION_DECODE,
    SCAN_PREFILL, SCAN_DECODE, COPY,
)  # fmt: skip
SHIPPED = Path(__file__).with_name("ceilings.json")

# What the user's keys `efficiency: {matmul: 0.8}` change: a share of every class they stand for.
_COMPUTE_OF = {
    "matmul": (MATMUL, HEAD, EXPERTS),
    "attention": (ATTENTION_PREFILL, ATTENTION_PREFIX, ATTENTION_DECODE),
    "scan": (SCAN_PREFILL, SCAN_DECODE),
}
_WHOLE = (
    "step_overhead_s",
    "layer_overhead_s",
    "link",
    "allreduce_latency_s",
)  # fields of Efficiency itself


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What kernels of one class attain.

    compute, memory: shares of the peak matrix rate and memory bandwidth, 0 < share <= 1.
    fixed_s: launches, drains and latencies, for each layer (or other launch) whatever its size.
    """

    compute: float = 1.0
    memory: float = 1.0
    fixed_s: float = 0.0


@dataclass(frozen=True)
class Efficiency:
    """Ceilings of all classes; the default of each is the peak itself.

    kinds: for a class, ceilings of kinds of layers that have kernels of their own (`mla` in
    attention_decode). relative: kinds whose rates are only known as a multiple of the class's.
    step_overhead_s: of a step, whatever is in it. layer_overhead_s: of a layer, both its mixer and
    its FFN, where a user gives it in place of fixed times of classes. link: share of the link's
    rate, allreduce_latency_s: of one all-reduce whatever its size; both are assumed, not measured.
    """

    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, Ceiling]] = field(default_factory=dict)
    relative: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    step_overhead_s: float = 0.0
    layer_overhead_s: float = 0.0
    link: float = 1.0
    allreduce_latency_s: float = 0.0

    def ceiling(self, part: str, kind: str = "") -> Ceiling:
        """Of a class of kernels, for layers of `kind` where these differ."""
        own = self.kinds.get(part, {}).get(kind)
        if own is not None:
            return own
        found = self.ceilings.get(part, Ceiling())
        factor = self.relative.get(part, {}).get(kind, 1.0)
        return replace(found, compute=found.compute * factor, memory=found.memory * factor)

    def changed(self, given: Mapping[str, float]) -> "Efficiency":
        """With a user's shares and times in place of the measured ones.

        matmul, attention, scan: compute shares of these kernels, for all kinds of layers; memory:
        all shares of bandwidth; layer_overhead_s: the fixed time of a layer, in place of those of
        its parts.
        """
        return replace(
            self,
            ceilings={part: _changed(self.ceiling(part), part, given) for part in CLASSES},
            kinds={
                part: {
                    kind: _changed(self.ceiling(part, kind), part, given)
                    for kind in {**self.relative.get(part, {}), **self.kinds.get(part, {})}
                }
                for part in CLASSES
            },
            relative={},  # what a user sets is no multiple; the rest is now among the kinds
            **{key: given[key] for key in _WHOLE if key in given},
        )


def _changed(ceiling: Ceiling, part: str, given: Mapping[str, float]) -> Ceiling:
    for key, parts in _COMPUTE_OF.items():
        if key in given and part in parts:
            ceiling = replace(ceiling, compute=given[key])
    if "memory" in given:
        ceiling = replace(ceiling, memory=given["memory"])
    if "layer_overhead_s" in given:
        ceiling = replace(ceiling, fixed_s=0.0)
    return ceiling


@cache
def measured_efficiency() -> Efficiency:
    """The shipped ceilings."""
    return parse_efficiency(json.loads(SHIPPED.read_text()))


def parse_efficiency(data: Mapping[str, Any]) -> Efficiency:
    """From the JSON object of a ceilings file."""
    return Efficiency(
        _ceilings(data["classes"]),
        {part: _ceilings(kinds) for part, kinds in data["kinds"].items()},
        data["relative"],
        data["step_overhead_s"],
        link=data["assumed"]["link"],
        allreduce_latency_s=data["assumed"]["allreduce_latency_s"],
    )


def _ceilings(data: Mapping[str, Mapping[str, float]]) -> dict[str, Ceiling]:
    return {
        name: Ceiling(values["compute"], values["memory"], values["fixed_s"])
        for name, values in data.items()
    }
