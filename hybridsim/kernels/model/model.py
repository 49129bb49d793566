"""The forward pass of one step, cut where a cost model wants to see its parts.

A layer is a mixer (gated delta, KDA, gated or latent attention) and a feed-forward part (dense or
experts). A mixer's work is cut in five: `project`, `prepare` and `finish` depend on the number of
tokens alone; `convolve` and `mix` run over time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hybridsim.kernels import pointwise, rows
from hybridsim.kernels.model.batch import NUM_SCORE_OFFSETS, Pools, StepBatch, StepShape, make_batch
from hybridsim.kernels.model.ffn import ExpertWeights, Ffn, Mlp, Moe, check_ffn
from hybridsim.kernels.model.gated_attention import GatedAttention, check_attention
from hybridsim.kernels.model.latent_attention import LatentAttention
from hybridsim.kernels.model.place import Place
from hybridsim.kernels.model.recurrent import (
    RECURRENT,
    GatedDelta,
    KimiDelta,
    RecurrentMixer,
    check_recurrent,
)
from hybridsim.kernels.recurrence.chunked import CHUNK_SIZE
from hybridsim.models import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, RecurrentSpec

Recurrent = GatedDelta | KimiDelta
Attention = GatedAttention | LatentAttention
Mixer = Recurrent | Attention

# Experts of a large model do not fit one GPU: layers share this much of them in turn. Each layer's
# are far larger than the L2 cache, so every layer reads its experts from memory all the same.
MAX_EXPERT_BYTES = 32 * 2**30


@dataclass(eq=False)
class Layer:
    """One layer and its place in the model."""

    index: int
    mixer: Mixer
    ffn: Ffn
    norm: torch.Tensor
    ffn_norm: torch.Tensor


def check_model(spec: ModelSpec) -> None:
    """Raise ValueError, with the reason, where a model has layers that no kernel here computes."""
    if not spec.is_hybrid:
        raise ValueError("no step for models without recurrent and attention layers")
    for layer in spec.layers:
        if isinstance(layer.mixer, RecurrentSpec):
            check_recurrent(layer.mixer)
        elif isinstance(layer.mixer, AttentionSpec):
            check_attention(layer.mixer)
        else:
            raise ValueError("no step for layers without a mixer")
        check_ffn(layer.ffn)


class HybridModel:
    """Weights, state slots and KV pages of one rank with random numbers. `step` runs a step.

    states `[recurrent layers, slots, H, K, V]` float32, conv_states `[recurrent layers, slots,
    W - 1, channels]`; every attention layer has `num_pages` pages of its own.
    """

    def __init__(
        self, spec: ModelSpec, num_slots: int, num_pages: int, place: Place | None = None
    ) -> None:
        check_model(spec)
        self.spec, self.num_pages = spec, num_pages
        self.place = place = place or Place()
        first = spec.recurrent_layers[0]
        assert first.conv is not None
        count = len(spec.recurrent_layers)
        state = (first.num_value_heads, first.key_dim, first.value_dim)
        self.states = place.full(0.0, count, num_slots, *state)
        self.conv_states = place.random(
            count, num_slots, first.conv.kernel - 1, first.conv.channels
        )
        self.expert_weights = self._make_experts()
        self.embedding = place.matrix(spec.vocab, spec.hidden)
        self.head = self.embedding if spec.tied else place.matrix(spec.vocab, spec.hidden)
        self.norm = place.full(1.0, spec.hidden)
        self.layers = self._make_layers()

    def _make_experts(self) -> list[ExpertWeights]:
        """As many distinct layers of experts as the model has and MAX_EXPERT_BYTES hold."""
        specs = [ffn for ffn in self.spec.ffn_layers if isinstance(ffn, MoeSpec)]
        if not specs:
            return []
        layer_bytes = 2 * specs[0].num_experts * specs[0].expert_params(self.spec.hidden)
        count = max(1, min(len(specs), MAX_EXPERT_BYTES // layer_bytes))
        return [ExpertWeights(specs[0], self.spec.hidden, self.place) for _ in range(count)]

    def _make_layers(self) -> list[Layer]:
        spec, place, layers = self.spec, self.place, []
        recurrent = experts = 0
        for index, layer in enumerate(spec.layers):
            mixer: Mixer
            if isinstance(layer.mixer, RecurrentSpec):
                states = self.states[recurrent], self.conv_states[recurrent]
                mixer = RECURRENT[layer.mixer.kind](layer.mixer, spec.hidden, *states, place)
                recurrent += 1
            else:
                assert layer.mixer is not None
                kind = LatentAttention if layer.mixer.latent else GatedAttention
                mixer = kind(layer.mixer, spec.hidden, self.num_pages, place)
            ffn: Ffn
            if isinstance(layer.ffn, MlpSpec):
                ffn = Mlp(layer.ffn.intermediate, spec.hidden, place)
            else:
                assert layer.ffn is not None
                weights = self.expert_weights[experts % len(self.expert_weights)]
                ffn = Moe(layer.ffn, spec.hidden, weights, place)
                experts += 1
            norms = (place.full(1.0, spec.hidden) for _ in range(2))
            layers.append(Layer(index, mixer, ffn, *norms))
        return layers

    @property
    def num_slots(self) -> int:
        return self.states.shape[1]

    @property
    def attention_layers(self) -> list[Attention]:
        return [x.mixer for x in self.layers if not isinstance(x.mixer, RecurrentMixer)]

    @property
    def recurrent_layers(self) -> list[Recurrent]:
        return [x.mixer for x in self.layers if isinstance(x.mixer, RecurrentMixer)]

    @property
    def expert_layers(self) -> list[Moe]:
        return [x.ffn for x in self.layers if isinstance(x.ffn, Moe)]

    def batch(self, shape: StepShape, seed: int, own_routing: bool = False) -> StepBatch:
        """A batch on random slots and pages. own_routing: by the router, not by random scores."""
        experts, attention = self.expert_layers, self.attention_layers[0]
        pools = Pools(
            self.num_pages, self.num_slots, attention.query_block(shape.chunks),
            attention.spec.num_heads, CHUNK_SIZE,
            experts[0].spec.num_experts if experts and not own_routing else 0,
            self.place.device,
        )  # fmt: skip
        return make_batch(shape, pools, seed)

    def copy_states(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """States and convolution states of all layers, from slots to slots; both int32 `[N]`."""
        rows.copy_rows(self.states, sources, targets)
        rows.copy_rows(self.conv_states, sources, targets)

    def step(self, batch: StepBatch) -> torch.Tensor:
        """Next token `[P + N]` of every sequence of the batch."""
        return self.next_tokens(self.hidden(batch))

    def hidden(self, batch: StepBatch) -> torch.Tensor:
        """Last hidden vectors, normed, `[P + N, hidden]`, of the batch's sequences."""

        def mix(layer: Layer, projected: torch.Tensor) -> torch.Tensor:
            convolved = layer.mixer.convolve(projected, batch)
            return layer.mixer.mix(layer.mixer.prepare(projected, convolved, batch), batch)

        def route(layer: Layer, x: torch.Tensor) -> torch.Tensor:
            return self.feed_forward(layer, x, batch)

        return self.last(*self.run_layers(batch, mix, route), batch.ends)

    def run_layers(
        self,
        batch: StepBatch,
        mix: Callable[[Layer, torch.Tensor], torch.Tensor],
        feed: Callable[[Layer, torch.Tensor], torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The last layer's output and the residual before it, both `[R, hidden]`.

        mix: from a layer's projections to what its mixer finishes; feed: its feed-forward part.
        """
        residual = torch.nn.functional.embedding(batch.tokens.long(), self.embedding)
        delta: torch.Tensor | None = None
        for layer in self.layers:
            projected = layer.mixer.project(pointwise.add_norm(delta, residual, layer.norm))
            mixed = layer.mixer.finish(mix(layer, projected), projected)
            delta = feed(layer, pointwise.add_norm(mixed, residual, layer.ffn_norm))
        assert delta is not None
        return delta, residual

    def feed_forward(self, layer: Layer, x: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        """MLP or shared part and experts `[R, hidden]`; rows that only fill up reach no expert."""
        if isinstance(layer.ffn, Mlp):
            return layer.ffn(x)
        dense = layer.ffn.dense(x)
        count, scores = batch.shape.num_tokens, batch.scores
        if scores is not None:
            offset = layer.index % NUM_SCORE_OFFSETS
            scores = scores[offset : offset + count]
        out = layer.ffn.routed(x[:count], dense.first(count), scores)
        return out if len(out) == len(x) else torch.cat([out, dense.shared[count:]])

    def last(self, delta: torch.Tensor, residual: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """Final norm of the rows `ends`."""
        change, rest = delta.index_select(0, ends), residual.index_select(0, ends)
        return pointwise.add_norm(change, rest, self.norm)

    def next_tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """The most likely token of every row."""
        return (hidden @ self.head.T).argmax(dim=-1)


def timed_shapes(names: Sequence[str], make: Callable[[str], ModelSpec]) -> list[str]:
    """Those models that `check_model` finds nothing against."""
    found = []
    for name in names:
        try:
            check_model(make(name))
        except ValueError:
            continue
        found.append(name)
    return found
