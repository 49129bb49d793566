"""The forward pass of one step, cut where a cost model wants to see its parts."""

from dataclasses import dataclass, field

import torch

from hybridsim.kernels import attention, conv, pointwise, recurrence
from hybridsim.kernels.attention import PagedKV
from hybridsim.kernels.model.batch import PAGE_SIZE, StepBatch
from hybridsim.kernels.model.shapes import ModelShape
from hybridsim.kernels.recurrence import GATED_DELTA

BF16 = torch.bfloat16


def _random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).mul_(scale).to(BF16)


def _matrix(rows: int, columns: int) -> torch.Tensor:
    """Weights `[out, in]` that keep activations near 1."""
    return torch.empty(rows, columns, device="cuda", dtype=BF16).normal_(0, columns**-0.5)


@dataclass(eq=False)
class Layer:
    """Matrices of one layer, `[out, in]`; `project` holds all input projections side by side."""

    is_full: bool
    norm: torch.Tensor
    project: torch.Tensor
    output: torch.Tensor
    mlp_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    mixer: dict[str, torch.Tensor] = field(default_factory=dict)


def make_layer(shape: ModelShape, is_full: bool) -> Layer:
    """Random weights of one layer."""
    if is_full:
        inner = shape.heads * shape.head_size
        width = 2 * inner + 2 * shape.kv_heads * shape.head_size
        mixer = {name: torch.ones(shape.head_size, device="cuda") for name in ("q_norm", "k_norm")}
    else:
        inner = shape.value_heads * shape.value_size
        width = shape.conv_channels + inner + 2 * shape.value_heads
        mixer = {
            "conv": _random(shape.conv_channels, shape.conv_width, scale=0.5),
            "a_log": torch.zeros(shape.value_heads, device="cuda"),
            "dt_bias": torch.full((shape.value_heads,), -2.0, device="cuda"),
            "norm": torch.ones(shape.value_size, device="cuda"),
        }
    return Layer(
        is_full, torch.ones(shape.hidden, device="cuda"), _matrix(width, shape.hidden),
        _matrix(shape.hidden, inner), torch.ones(shape.hidden, device="cuda"),
        _matrix(2 * shape.intermediate, shape.hidden), _matrix(shape.hidden, shape.intermediate),
        mixer,
    )  # fmt: skip


class HybridModel:
    """Weights, state slots and KV pages on the GPU. `step` runs one engine step.

    states `[recurrent layers, slots, H, K, V]` float32, conv_states `[recurrent layers, slots,
    W - 1, channels]`, caches: one PagedKV a full layer.
    """

    def __init__(self, shape: ModelShape, num_slots: int, num_pages: int) -> None:
        self.shape = shape
        kinds = [(i + 1) % shape.full_every == 0 for i in range(shape.num_layers)]
        self.layers = [make_layer(shape, is_full) for is_full in kinds]
        self.embedding = _matrix(shape.vocabulary, shape.hidden)
        self.norm = torch.ones(shape.hidden, device="cuda")
        state = (shape.value_heads, shape.key_size, shape.value_size)
        self.states = torch.zeros(shape.recurrent_layers, num_slots, *state, device="cuda")
        conv_state = (shape.conv_width - 1, shape.conv_channels)
        self.conv_states = _random(shape.recurrent_layers, num_slots, *conv_state)
        pages = (num_pages, PAGE_SIZE, shape.kv_heads, shape.head_size)
        self.caches = [
            PagedKV.gqa(*(torch.empty(pages, device="cuda", dtype=BF16).normal_() for _ in "kv"))
            for _ in range(shape.full_layers)
        ]

    @property
    def num_slots(self) -> int:
        return self.states.shape[1]

    @property
    def num_pages(self) -> int:
        return self.caches[0].keys.shape[0]

    def step(self, batch: StepBatch) -> torch.Tensor:
        """Next token `[P + N]` of every sequence of the batch."""
        return self.next_tokens(self.hidden(batch))

    def hidden(self, batch: StepBatch) -> torch.Tensor:
        """Last hidden vectors, normed, `[P + N, hidden]`, of the batch's sequences."""
        residual = torch.nn.functional.embedding(batch.tokens.long(), self.embedding)
        delta: torch.Tensor | None = None
        recurrent = full = 0
        for layer in self.layers:
            projected = self.enter(layer, delta, residual)
            if layer.is_full:
                mixed = self.mix_full(layer, full, projected, batch)
                full += 1
            else:
                mixed = self.mix_recurrent(layer, recurrent, projected, batch)
                recurrent += 1
            delta = self.leave(layer, mixed, projected, residual)
        return self.last(delta, residual, batch.ends)

    def enter(
        self, layer: Layer, delta: torch.Tensor | None, residual: torch.Tensor
    ) -> torch.Tensor:
        """Norm and input projections `[T, width]`."""
        return pointwise.add_norm(delta, residual, layer.norm) @ layer.project.T

    def leave(
        self, layer: Layer, mixed: torch.Tensor, projected: torch.Tensor, residual: torch.Tensor
    ) -> torch.Tensor:
        """Output gate, output projection and MLP: what is to be added to the residual."""
        shape = self.shape
        if layer.is_full:
            inner = shape.heads * shape.head_size
            pointwise.sigmoid_gate(mixed, projected[:, inner : 2 * inner])
        else:
            at = shape.conv_channels
            gate = projected[:, at : at + mixed.shape[1]]
            heads = mixed.view(-1, shape.value_heads, shape.value_size)
            pointwise.gated_norm(heads, gate, layer.mixer["norm"])
        hidden = pointwise.add_norm(mixed @ layer.output.T, residual, layer.mlp_norm)
        return pointwise.silu_mul(hidden @ layer.gate_up.T) @ layer.down.T

    def last(
        self, delta: torch.Tensor | None, residual: torch.Tensor, ends: torch.Tensor
    ) -> torch.Tensor:
        """Final norm of the rows `ends`."""
        change = None if delta is None else delta.index_select(0, ends)
        return pointwise.add_norm(change, residual.index_select(0, ends), self.norm)

    def next_tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """The most likely token of every row."""
        return (hidden @ self.embedding.T).argmax(dim=-1)

    def mix_recurrent(
        self, layer: Layer, index: int, projected: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        """Convolution and gated delta rule, `[T, H V]`."""
        mixed = self.convolve(layer, index, projected, batch)
        decay, strength = self.gates(layer, mixed, projected)
        return self.recur(index, mixed, decay, strength, batch)

    def mix_full(
        self, layer: Layer, index: int, projected: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        """Attention `[T, heads * head size]`; new keys and values are written to the pages."""
        return self.attend(index, *self.place(layer, index, projected, batch), batch)

    def convolve(
        self, layer: Layer, index: int, projected: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        """The short convolution of the first channels of `projected`: prefill and decode rows."""
        cut = batch.shape.num_prefill_tokens
        x = projected[:, : self.shape.conv_channels]
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        weight, states = layer.mixer["conv"], self.conv_states[index]
        if cut:
            conv.prefill(x[:cut], weight, None, states, batch.plan, out=out[:cut])
        if len(out) > cut:
            conv.decode(x[cut:], weight, None, states, batch.slots, out=out[cut:])
        return out

    def gates(
        self, layer: Layer, mixed: torch.Tensor, projected: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log decay and write strength; queries and keys in `mixed` are normalised."""
        shape = self.shape
        return pointwise.delta_inputs(
            mixed[:, : 2 * shape.key_heads * shape.key_size],
            projected[:, -2 * shape.value_heads :],
            layer.mixer["a_log"], layer.mixer["dt_bias"], shape.key_size,
        )  # fmt: skip

    def recur(
        self,
        index: int,
        mixed: torch.Tensor,
        decay: torch.Tensor,
        strength: torch.Tensor,
        batch: StepBatch,
    ) -> torch.Tensor:
        """The gated delta rule `[T, H V]`: prefill rows chunked, decode rows stepped."""
        shape, cut, states = self.shape, batch.shape.num_prefill_tokens, self.states[index]
        keys = shape.key_heads * shape.key_size
        q = mixed[:, :keys].unflatten(1, (shape.key_heads, shape.key_size))
        k = mixed[:, keys : 2 * keys].unflatten(1, (shape.key_heads, shape.key_size))
        v = mixed[:, 2 * keys :].unflatten(1, (shape.value_heads, shape.value_size))
        out = torch.empty(v.shape, device=v.device, dtype=v.dtype)
        scale = shape.key_size**-0.5
        if cut:
            recurrence.prefill(
                GATED_DELTA, q[:cut], k[:cut], v[:cut], decay[:cut], strength[:cut], states,
                batch.plan, scale, out=out[:cut],
            )  # fmt: skip
        if len(out) > cut:
            recurrence.decode(
                GATED_DELTA, q[cut:], k[cut:], v[cut:], decay[cut:], strength[cut:], states,
                batch.slots, batch.index, scale, out=out[cut:],
            )  # fmt: skip
        return out.flatten(1)

    def place(
        self, layer: Layer, index: int, projected: torch.Tensor, batch: StepBatch
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normalised and rotated queries and keys, values; keys and values go to the pages."""
        shape, cache = self.shape, self.caches[index]
        inner, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        q, _, k, v = projected.split([inner, inner, kv, kv], dim=1)
        size = (-1, shape.head_size)
        mixer, positions = layer.mixer, batch.positions
        q = pointwise.norm_rotate(q.unflatten(1, size), mixer["q_norm"], positions, shape.rotary)
        k = pointwise.norm_rotate(k.unflatten(1, size), mixer["k_norm"], positions, shape.rotary)
        v = v.unflatten(1, size)
        assert cache.values is not None
        attention.write_rows(k, cache.keys, batch.rows)
        attention.write_rows(v, cache.values, batch.rows)
        return q, k, v

    def attend(
        self, index: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, batch: StepBatch
    ) -> torch.Tensor:
        """Attention of all rows `[T, heads * head size]`."""
        cut, cache = batch.shape.num_prefill_tokens, self.caches[index]
        out = torch.empty_like(q)
        scale = self.shape.head_size**-0.5
        if cut:
            attention.prefill(
                q[:cut], k[:cut], v[:cut], cache, batch.table, batch.prefix, batch.query_plan,
                scale, out=out[:cut], max_prefix=max(prefix for _, prefix in batch.shape.chunks),
            )  # fmt: skip
        if len(out) > cut:
            attention.decode(
                q[cut:], cache, batch.decode_table, batch.lengths, scale, out=out[cut:]
            )
        return out.flatten(1)
