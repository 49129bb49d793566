"""Step times from counts and peak rates: each operator takes the longer of its two floors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hybridsim.cost import work as count
from hybridsim.cost.allreduce import allreduce_of
from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.counts import AttentionCount, count_step
from hybridsim.cost.efficiency import (
    ATTENTION_DECODE,
    EXPERTS,
    HEAD,
    MATMUL,
    Efficiency,
    measured_efficiency,
)
from hybridsim.cost.gpus import Gpu
from hybridsim.cost.piecewise import Line, sum_of_larger
from hybridsim.cost.work import Work
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec

_BY_WEIGHTS = (MATMUL, HEAD, EXPERTS)  # products whose rate depends on the weights' number format


class _Rates(NamedTuple):
    flops_per_s: float
    bytes_per_s: float
    fixed_s: float


@dataclass
class RooflineCost:
    """A CostModel for `model` (or one rank of it) on `gpu`.

    An operator takes max(FLOPs / attainable rate, bytes / attainable bandwidth) and a fixed time a
    layer; operators follow one another, equal layers are added up. Experts are chosen uniformly
    and independently. Decodes with a sliding window are taken as equally long, since only the sum
    of their contexts is known. `remarks`: for notes().
    """

    model: ModelSpec
    gpu: Gpu
    efficiency: Efficiency = field(default_factory=measured_efficiency)
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.model.tp > 1 and self.gpu.link_bytes_per_s is None:
            raise UserError("gpu.link_bytes_per_s", f"missing; needed for tp {self.model.tp}")
        self._counts = count_step(self.model)
        link_bytes_per_s = self.gpu.link_bytes_per_s or 1.0  # none is needed by one rank
        self._allreduce = allreduce_of(self.model, link_bytes_per_s, self.efficiency)
        self._rates: dict[tuple[str, str], _Rates] = {}
        self._weights_flops_per_s = self.gpu.flops_per_s
        if self.model.dtypes.weights == "float8" and self.gpu.fp8_flops_per_s:
            self._weights_flops_per_s = self.gpu.fp8_flops_per_s

    def step_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> float:
        """See CostModel. A step with nothing to do takes no time."""
        parts = self.parts_s(chunks, num_decodes, decode_context_tokens, copied_bytes)
        return sum(parts.values())

    def parts_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> dict[str, float]:
        """Seconds of one step by class of kernels; their sum is step_s."""
        if not chunks and not num_decodes and not copied_bytes:
            return {}
        step = (chunks, num_decodes, decode_context_tokens, copied_bytes)
        parts: dict[str, float] = {}
        for work in count.step_work(self._counts, *step):
            parts[work.part] = parts.get(work.part, 0.0) + self.floor_s(work)
        num_tokens = sum(chunk.num_new_tokens for chunk in chunks) + num_decodes
        if self.model.tp > 1 and num_tokens:
            parts["allreduce"] = self._allreduce.step_s(num_tokens)
        parts["overhead"] = self._overhead_s(num_tokens)
        return parts

    def _overhead_s(self, num_tokens: int) -> float:
        """Of a step, and of its layers where it computes any."""
        layers = self._counts.num_sublayers / 2 if num_tokens else 0
        return self.efficiency.step_overhead_s + layers * self.efficiency.layer_overhead_s

    def decode_steps_s(self, num_steps: int, num_decodes: int, decode_context_tokens: int) -> float:
        """See CostModel. Only attention depends on the context; it is summed piece by piece."""
        if num_steps <= 0 or num_decodes <= 0:
            return 0.0
        fixed_s = self._overhead_s(num_decodes) + self._allreduce.step_s(num_decodes)
        work = count.fixed_work(self._counts, num_decodes, num_decodes, num_decodes)
        fixed_s += sum(map(self.floor_s, work))
        growing_s = 0.0
        for kind in self._counts.attention:
            fixed_s += kind.num_layers * self._rates_of(ATTENTION_DECODE, kind.name).fixed_s
            growing_s += self._growing_s(kind, num_steps, num_decodes, decode_context_tokens)
        return num_steps * fixed_s + growing_s

    def floor_s(self, work: Work) -> float:
        """Seconds of one piece of work at the ceilings of its class."""
        fixed_s = self._rates_of(work.part, work.kind).fixed_s
        return max(self._floors_s(work)) + work.num_launches * fixed_s

    def notes(self) -> list[str]:
        """See CostModel."""
        shipped = self.efficiency == measured_efficiency()
        shares = "shares that kernels attained on an H200" if shipped else "given shares"
        return [f"step times computed from peak rates at {shares}, not measured", *self.remarks]

    def _floors_s(self, work: Work) -> tuple[float, float]:
        """Compute and memory floor of a piece of work, without its fixed time."""
        rates = self._rates_of(work.part, work.kind)
        return work.flops / rates.flops_per_s, work.moved_bytes / rates.bytes_per_s

    def _rates_of(self, part: str, kind: str) -> _Rates:
        """What a class of kernels attains on this GPU, worked out at its first use."""
        found = self._rates.get((part, kind))
        if found is None:
            ceiling = self.efficiency.ceiling(part, kind)
            peak = self._weights_flops_per_s if part in _BY_WEIGHTS else self.gpu.flops_per_s
            bytes_per_s = self.gpu.hbm_bytes_per_s * ceiling.memory
            found = _Rates(peak * ceiling.compute, bytes_per_s, ceiling.fixed_s)
            self._rates[part, kind] = found
        return found

    def _growing_s(
        self, kind: AttentionCount, num_steps: int, num_decodes: int, context_tokens: int
    ) -> float:
        """Both floors are lines over coming steps, until every window is full; then they stay.

        At step i the requests see context + (i + 1) num_decodes keys together.
        """
        first, second = self._decode_floors(kind, num_decodes, context_tokens)
        later, after = self._decode_floors(kind, num_decodes, context_tokens + num_decodes)
        window, rising = kind.spec.window, num_steps
        if window is not None:
            keys, most = context_tokens + num_decodes, num_decodes * window
            rising = min(num_steps, max(0, -(-(most - keys) // num_decodes)))
        total_s = sum_of_larger(Line(first, later - first), Line(second, after - second), rising)
        if rising < num_steps:
            full = self._decode_floors(kind, num_decodes, context_tokens + rising * num_decodes)
            total_s += (num_steps - rising) * max(full)
        return total_s

    def _decode_floors(
        self, kind: AttentionCount, num_decodes: int, context_tokens: int
    ) -> tuple[float, float]:
        keys = count.keys_read(kind, num_decodes, context_tokens)
        return self._floors_s(count.attention_decode_work(kind, num_decodes, keys))
