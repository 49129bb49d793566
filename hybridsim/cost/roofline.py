"""Step times from counts and peak rates: each operator takes the longer of its two floors."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.counts import AttentionCount, count_step
from hybridsim.cost.gpus import Gpu
from hybridsim.cost.piecewise import Line, sum_of_larger
from hybridsim.errors import UserError
from hybridsim.models import ModelSpec


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peak rates that kernels reach, and fixed costs.

    The defaults are round figures of well-tuned kernels on Hopper, not measurements of one engine:
    large matrix products 0.75 of peak, attention prefill 0.6, chunked scans 0.3 (small tiles and
    a triangular solve), streaming 0.85 of memory bandwidth, all-reduce 0.7 of the link.
    step_overhead_s: scheduling and sampling of a step. layer_overhead_s: launches and drains of a
    layer's kernels in a CUDA graph. allreduce_latency_s: of one all-reduce, whatever its size.
    """

    matmul: float = 0.75
    attention: float = 0.6
    scan: float = 0.3
    memory: float = 0.85
    link: float = 0.7
    step_overhead_s: float = 200e-6
    layer_overhead_s: float = 15e-6
    allreduce_latency_s: float = 8e-6


@dataclass
class RooflineCost:
    """A CostModel for `model` (or one rank of it) on `gpu`.

    An operator takes max(FLOPs / rate, bytes / bandwidth); operators follow one another, equal
    layers are added up. Experts are chosen uniformly and independently. Decodes with a sliding
    window are taken as equally long, since only the sum of their contexts is known.
    """

    model: ModelSpec
    gpu: Gpu
    efficiency: Efficiency = field(default_factory=Efficiency)

    def __post_init__(self) -> None:
        if self.model.tp > 1 and self.gpu.link_bytes_per_s is None:
            raise UserError("gpu.link_bytes_per_s", f"missing; needed for tp {self.model.tp}")
        gpu, share = self.gpu, self.efficiency
        peak = gpu.flops_per_s
        if self.model.dtypes.weights == "float8" and gpu.fp8_flops_per_s:
            peak = gpu.fp8_flops_per_s
        self._matmul_flops_per_s = peak * share.matmul
        self._attention_flops_per_s = gpu.flops_per_s * share.attention
        self._scan_flops_per_s = gpu.flops_per_s * share.scan
        self._bytes_per_s = gpu.hbm_bytes_per_s * share.memory
        self._counts = count_step(self.model)

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
        """Seconds of one step by operator; their sum is step_s."""
        if not chunks and not num_decodes:
            if not copied_bytes:
                return {}
            copy_s = 2 * copied_bytes / self._bytes_per_s
            return {"copy": copy_s, "overhead": self.efficiency.step_overhead_s}
        num_tokens = sum(chunk.num_new_tokens for chunk in chunks) + num_decodes
        parts = self._per_token_s(num_tokens, len(chunks) + num_decodes)
        parts["copy"] = 2 * copied_bytes / self._bytes_per_s
        if chunks:
            parts["attention_prefill"] = self._attention_prefill_s(chunks)
            parts["scan_prefill"] = self._scan_prefill_s(chunks)
        if num_decodes:
            parts["scan_decode"] = self._scan_decode_s(num_decodes)
            parts["attention_decode"] = self._attention_decode_s(num_decodes, decode_context_tokens)
        return parts

    def decode_steps_s(self, num_steps: int, num_decodes: int, decode_context_tokens: int) -> float:
        """See CostModel. Only attention depends on the context; it is summed piece by piece."""
        if num_steps <= 0 or num_decodes <= 0:
            return 0.0
        fixed_s = sum(self._per_token_s(num_decodes, num_decodes).values())
        fixed_s += self._scan_decode_s(num_decodes)
        growing_s = 0.0
        for kind in self._counts.attention:
            compute, memory, rising = self._decode_lines(kind, num_decodes, decode_context_tokens)
            growing_s += sum_of_larger(compute, memory, min(rising, num_steps))
            if num_steps > rising:
                later_tokens = decode_context_tokens + rising * num_decodes
                compute, memory, _ = self._decode_lines(kind, num_decodes, later_tokens)
                growing_s += (num_steps - rising) * max(compute.start, memory.start)
        return num_steps * fixed_s + growing_s

    def _floor_s(self, flops: float, flops_per_s: float, moved_bytes: float) -> float:
        return max(flops / flops_per_s, moved_bytes / self._bytes_per_s)

    def _per_token_s(self, num_tokens: int, num_rows: int) -> dict[str, float]:
        """What depends on the number of tokens only; `num_rows` of them get logits."""
        counts = self._counts
        dense_bytes = counts.dense_weight_bytes + num_tokens * counts.dense_io_bytes_per_token
        head_bytes = counts.head_weight_bytes + num_rows * counts.head_io_bytes_per_row
        rate = self._matmul_flops_per_s
        parts = {
            "matmul": self._floor_s(2 * num_tokens * counts.dense_params, rate, dense_bytes),
            "head": self._floor_s(2 * num_rows * counts.head_params, rate, head_bytes),
            "pointwise": num_tokens * counts.pointwise_bytes_per_token / self._bytes_per_s,
            "overhead": self.efficiency.step_overhead_s
            + counts.num_layers * self.efficiency.layer_overhead_s,
        }
        if counts.experts:
            parts["experts"] = self._experts_s(num_tokens)
        if self.model.tp > 1:
            parts["allreduce"] = self._allreduce_s(num_tokens)
        return parts

    def _experts_s(self, num_tokens: int) -> float:
        return sum(
            self._floor_s(
                num_tokens * kind.flops_per_token,
                self._matmul_flops_per_s,
                kind.spec.num_touched_experts(num_tokens) * kind.expert_bytes
                + num_tokens * kind.io_bytes_per_token,
            )
            for kind in self._counts.experts
        )

    def _allreduce_s(self, num_tokens: int) -> float:
        """A ring: every rank sends and receives 2 (tp - 1) / tp of the data, once a sublayer."""
        tp, share = self.model.tp, self.efficiency
        assert self.gpu.link_bytes_per_s is not None  # checked at construction
        moved_bytes = num_tokens * self._counts.hidden_bytes * 2 * (tp - 1) / tp
        once_s = moved_bytes / (self.gpu.link_bytes_per_s * share.link) + share.allreduce_latency_s
        return self._counts.num_sublayers * once_s

    def _attention_prefill_s(self, chunks: Sequence[PrefillChunk]) -> float:
        """One launch for all chunks: they share its two floors."""
        total_s = 0.0
        for kind in self._counts.attention:
            flops = moved_bytes = 0
            window = kind.spec.window
            for chunk in chunks:
                new, prefix = chunk.num_new_tokens, chunk.num_prefix_tokens
                flops += kind.num_layers * kind.spec.prefill_flops(new, prefix)
                read = prefix if window is None else min(prefix, window)
                # New keys and values are written and read, those of the prefix only read.
                moved_bytes += (read + 2 * new) * kind.kv_bytes_per_token
                moved_bytes += new * kind.io_bytes_per_token
            total_s += self._floor_s(flops, self._attention_flops_per_s, moved_bytes)
        return total_s

    def _scan_prefill_s(self, chunks: Sequence[PrefillChunk]) -> float:
        """One launch for all chunks; each reads and writes a state."""
        total_s = 0.0
        num_tokens = sum(chunk.num_new_tokens for chunk in chunks)
        for kind in self._counts.recurrent:
            flops = sum(kind.spec.prefill_flops(chunk.num_new_tokens) for chunk in chunks)
            moved_bytes = 2 * len(chunks) * kind.state_bytes + num_tokens * kind.io_bytes_per_token
            total_s += self._floor_s(kind.num_layers * flops, self._scan_flops_per_s, moved_bytes)
        return total_s

    def _scan_decode_s(self, num_decodes: int) -> float:
        """Every request's state is read and written."""
        return sum(
            self._floor_s(
                num_decodes * kind.decode_flops,
                self._scan_flops_per_s,
                num_decodes * (2 * kind.state_bytes + kind.io_bytes_per_token),
            )
            for kind in self._counts.recurrent
        )

    def _attention_decode_s(self, num_decodes: int, context_tokens: int) -> float:
        total_s = 0.0
        for kind in self._counts.attention:
            compute, memory, _ = self._decode_lines(kind, num_decodes, context_tokens)
            total_s += max(compute.start, memory.start)
        return total_s

    def _decode_lines(
        self, kind: AttentionCount, num_decodes: int, context_tokens: int
    ) -> tuple[Line, Line, int]:
        """Both floors as lines over coming steps, and for how many steps they hold.

        At step i the requests see context + (i + 1) num_decodes keys together, until every window
        is full; then nothing grows any more.
        """
        keys = context_tokens + num_decodes
        slope = num_decodes
        rising = 2**62
        if kind.spec.window is not None:
            most = num_decodes * kind.spec.window
            rising = max(0, -(-(most - keys) // num_decodes))
            keys, slope = (most, 0) if keys >= most else (keys, slope)
        compute_s = kind.decode_flops_per_key / self._attention_flops_per_s
        memory_s = kind.kv_bytes_per_token / self._bytes_per_s
        written_s = (
            num_decodes * (kind.kv_bytes_per_token + kind.io_bytes_per_token) / self._bytes_per_s
        )
        return (
            Line(keys * compute_s, slope * compute_s),
            Line(keys * memory_s + written_s, slope * memory_s),
            rising,
        )
