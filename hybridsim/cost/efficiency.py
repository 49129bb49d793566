"""How much of a GPU's peak rates kernels attain, class by class; the shipped shares are measured.

`ceilings.json` is written by `python -m hybridsim.cost.ceilings` from a measured profile. The same
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
ATTENTION_PREFILL, ATTENTION_DECODE = "attention_prefill", "attention_decode"
SCAN_PREFILL, SCAN_DECODE, COPY = "scan_prefill", "scan_decode", "copy"
CLASSES = (
    MATMUL, POINTWISE, HEAD, EXPERTS, ATTENTION_PREFILL, ATTENTION_DECODE, SCAN_PREFILL,
    SCAN_DECODE, COPY,
)  # fmt: skip
SHIPPED = Path(__file__).with_name("ceilings.json")

# What the user's keys `efficiency: {matmul: 0.8}` change: a share of every class they stand for.
_COMPUTE_OF = {
    "matmul": (MATMUL, HEAD, EXPERTS),
    "attention": (ATTENTION_PREFILL, ATTENTION_DECODE),
    "scan": (SCAN_PREFILL, SCAN_DECODE),
}
_WHOLE = ("step_overhead_s", "link", "allreduce_latency_s")  # fields of Efficiency itself


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

    relative: for a class, kinds of layers whose rates are that multiple of the class's (such as
    `kda` in scan_prefill). step_overhead_s: of a step, whatever is in it. link: share of the link's
    rate, allreduce_latency_s: of one all-reduce whatever its size; both are assumed, not measured.
    """

    ceilings: Mapping[str, Ceiling] = field(default_factory=dict)
    relative: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    step_overhead_s: float = 0.0
    link: float = 1.0
    allreduce_latency_s: float = 0.0

    def ceiling(self, part: str, kind: str = "") -> Ceiling:
        """Of a class of kernels, for layers of `kind` where these differ."""
        found = self.ceilings.get(part, Ceiling())
        factor = self.relative.get(part, {}).get(kind, 1.0)
        if factor == 1.0:
            return found
        return replace(found, compute=found.compute * factor, memory=found.memory * factor)

    def changed(self, given: Mapping[str, float]) -> "Efficiency":
        """With a user's shares and times in place of the measured ones.

        matmul, attention, scan: compute shares of these kernels, for all kinds of layers; memory:
        all shares of bandwidth; layer_overhead_s: the fixed time of a layer, in place of those of
        its parts.
        """
        ceilings = {part: self.ceiling(part) for part in CLASSES}
        relative = dict(self.relative)
        for key, parts in _COMPUTE_OF.items():
            for part in parts if key in given else ():
                ceilings[part] = replace(ceilings[part], compute=given[key])
                relative.pop(part, None)
        if "memory" in given:
            ceilings = {p: replace(x, memory=given["memory"]) for p, x in ceilings.items()}
        if "layer_overhead_s" in given:
            ceilings = {p: replace(x, fixed_s=0.0) for p, x in ceilings.items()}
            # Counted once for a mixer and once for an FFN: a layer has both as a rule.
            half_s = given["layer_overhead_s"] / 2
            ceilings[MATMUL] = replace(ceilings[MATMUL], fixed_s=half_s)
        own = {key: given[key] for key in _WHOLE if key in given}
        return replace(self, ceilings=ceilings, relative=relative, **own)


@cache
def measured_efficiency() -> Efficiency:
    """The shipped ceilings."""
    return parse_efficiency(json.loads(SHIPPED.read_text()))


def parse_efficiency(data: Mapping[str, Any]) -> Efficiency:
    """From the JSON object of a ceilings file."""
    ceilings = {
        part: Ceiling(values["compute"], values["memory"], values["fixed_s"])
        for part, values in data["classes"].items()
    }
    return Efficiency(
        ceilings,
        data["relative"],
        data["step_overhead_s"],
        data["assumed"]["link"],
        data["assumed"]["allreduce_latency_s"],
    )
