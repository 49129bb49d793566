"""Recurrent mixers: Gated DeltaNet and Kimi Delta Attention."""

from abc import ABC, abstractmethod

import torch

from hybridsim.kernels import conv, pointwise, recurrence
from hybridsim.kernels.model.batch import StepBatch
from hybridsim.kernels.model.place import Place
from hybridsim.kernels.recurrence import GATED_DELTA, KDA, Rule
from hybridsim.models import RecurrentSpec

Inputs = tuple[torch.Tensor, ...]


class RecurrentMixer(ABC):
    """What both share: the convolution and the recurrence, over prefill rows and decode rows.

    states `[slots, H, K, V]` float32 and conv_states `[slots, W - 1, channels]` are this layer's
    part of the model's. The input projection begins with queries, keys and values.
    """

    rule: Rule

    def __init__(
        self,
        spec: RecurrentSpec,
        hidden: int,
        states: torch.Tensor,
        conv_states: torch.Tensor,
        place: Place,
    ) -> None:
        assert spec.conv is not None
        self.spec, self.states, self.conv_states = spec, states, conv_states
        self.channels = spec.conv.channels
        self.taps = place.random(self.channels, spec.conv.kernel, scale=0.5)
        self.norm = place.full(1.0, spec.value_dim)
        self.output = place.matrix(hidden, spec.value_width)
        self.input = place.matrix(self.channels + self.num_extra_columns(spec), hidden)
        self.make_gates(place)

    @abstractmethod
    def make_gates(self, place: Place) -> None:
        """What else the layer's gates need."""

    @staticmethod
    @abstractmethod
    def num_extra_columns(spec: RecurrentSpec) -> int:
        """Columns of the input projection after queries, keys and values."""

    def project(self, x: torch.Tensor) -> torch.Tensor:
        """All input projections of x `[R, hidden]`, side by side."""
        return x @ self.input.T

    def convolve(self, projected: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        """The short convolution of queries, keys and values `[R, channels]`."""
        cut, end = batch.shape.num_prefill_tokens, batch.shape.num_tokens
        x = projected[:, : self.channels]
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        if cut:
            conv.prefill(x[:cut], self.taps, None, self.conv_states, batch.plan, out=out[:cut])
        if end > cut:
            rows = slice(cut, end)
            conv.decode(x[rows], self.taps, None, self.conv_states, batch.slots, out=out[rows])
        return out

    def mix(self, inputs: Inputs, batch: StepBatch) -> torch.Tensor:
        """The recurrence `[R, H V]`: prefill rows chunked, decode rows stepped.

        inputs: convolved `[R, channels]`, log decay, strength, as `prepare` makes them.
        """
        spec, (convolved, decay, strength) = self.spec, inputs
        cut, end = batch.shape.num_prefill_tokens, batch.shape.num_tokens
        width = spec.key_width
        q, k, v = convolved.split([width, width, spec.value_width], dim=1)
        q, k = (x.unflatten(1, (spec.num_key_heads, spec.key_dim)) for x in (q, k))
        v = v.unflatten(1, (spec.num_value_heads, spec.value_dim))
        out = torch.empty(v.shape, device=v.device, dtype=v.dtype)
        scale = spec.key_dim**-0.5
        if cut:
            recurrence.prefill(
                self.rule, q[:cut], k[:cut], v[:cut], decay[:cut], strength[:cut], self.states,
                batch.plan, scale, out=out[:cut],
            )  # fmt: skip
        if end > cut:
            rows = slice(cut, end)
            recurrence.decode(
                self.rule, q[rows], k[rows], v[rows], decay[rows], strength[rows], self.states,
                batch.slots, batch.index, scale, out=out[rows],
            )  # fmt: skip
        return out.flatten(1)


class GatedDelta(RecurrentMixer):
    """Gated DeltaNet: one decay a head; the output gated by silu."""

    rule = GATED_DELTA

    def make_gates(self, place: Place) -> None:
        self.a_log = place.full(0.0, self.spec.num_value_heads)
        self.dt_bias = place.full(-2.0, self.spec.num_value_heads)

    @staticmethod
    def num_extra_columns(spec: RecurrentSpec) -> int:
        """Output gate; logits of decay and write strength a head."""
        return spec.value_width + 2 * spec.num_value_heads

    def prepare(self, projected: torch.Tensor, convolved: torch.Tensor, batch: StepBatch) -> Inputs:
        """Unit queries and keys (in place) and gates."""
        decay, strength = pointwise.delta_inputs(
            convolved[:, : 2 * self.spec.key_width],
            projected[:, -2 * self.spec.num_value_heads :],
            self.a_log, self.dt_bias, self.spec.key_dim,
        )  # fmt: skip
        return convolved, decay, strength

    def finish(self, mixed: torch.Tensor, projected: torch.Tensor) -> torch.Tensor:
        """Gated norm (in place) and output projection `[R, hidden]`."""
        gate = projected[:, self.channels : self.channels + self.spec.value_width]
        heads = mixed.unflatten(1, (self.spec.num_value_heads, self.spec.value_dim))
        pointwise.gated_norm(heads, gate, self.norm)
        return mixed @ self.output.T


class KimiDelta(RecurrentMixer):
    """Kimi Delta Attention: a decay for each key channel; decay and output gate have low rank."""

    rule = KDA

    def make_gates(self, place: Place) -> None:
        spec = self.spec
        self.decay_up = place.matrix(spec.num_value_heads * spec.key_dim, spec.key_dim)
        self.gate_up = place.matrix(spec.value_width, spec.value_dim)
        self.a_log = place.full(0.0, spec.num_value_heads)
        self.dt_bias = place.full(-2.0, spec.num_value_heads * spec.key_dim)

    @staticmethod
    def num_extra_columns(spec: RecurrentSpec) -> int:
        """Low-rank decay and output gate; logits of write strength a head."""
        return spec.key_dim + spec.value_dim + spec.num_value_heads

    def _extra(self, projected: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spec = self.spec
        sizes = [spec.key_dim, spec.value_dim, spec.num_value_heads]
        return projected[:, self.channels :].split(sizes, dim=1)

    def prepare(self, projected: torch.Tensor, convolved: torch.Tensor, batch: StepBatch) -> Inputs:
        """Unit queries and keys (in place) and gates."""
        low, _, logits = self._extra(projected)
        decay, strength = pointwise.channel_inputs(
            convolved[:, : 2 * self.spec.key_width], low @ self.decay_up.T, logits,
            self.a_log, self.dt_bias, self.spec.key_dim,
        )  # fmt: skip
        return convolved, decay, strength

    def finish(self, mixed: torch.Tensor, projected: torch.Tensor) -> torch.Tensor:
        """Gated norm (in place) and output projection `[R, hidden]`."""
        gate = self._extra(projected)[1] @ self.gate_up.T
        heads = mixed.unflatten(1, (self.spec.num_value_heads, self.spec.value_dim))
        pointwise.gated_norm(heads, gate, self.norm, "sigmoid")
        return mixed @ self.output.T


RECURRENT: dict[str, type[GatedDelta] | type[KimiDelta]] = {
    "gated_deltanet": GatedDelta,
    "kda": KimiDelta,
}


def check_recurrent(spec: RecurrentSpec) -> None:
    """Raise ValueError for recurrences that no class here computes."""
    if spec.kind not in RECURRENT or spec.conv is None:
        raise ValueError(f"no step for {spec.kind} layers; there is for {', '.join(RECURRENT)}")
