"""The parts of a step as calls to be timed.

A step is: the dense part (all that depends on the number of tokens alone: projections, MLPs, shared
experts, routers, norms, gates, rotary embedding, KV writes), the head, the routed experts, and for
recurrent and attention layers a prefill and a decode part. The dense part runs over all layers, the
others over some layers of their kind, each with weights, states and pages of its own, so that those
come from memory and not from the cache.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from hybridsim.kernels.bench.timing import Call, rotations
from hybridsim.kernels.model.batch import NUM_SCORE_OFFSETS, StepBatch, StepShape
from hybridsim.kernels.model.ffn import DenseParts
from hybridsim.kernels.model.model import HybridModel, Layer, Mixer, Moe, RecurrentMixer

# Layers of one kind that a part runs over; the time is scaled to all of the kind.
TIMED_LAYERS = 6
_MAX_BATCHES = 12

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Part:
    """Calls on different slots and pages; a call's time times `factor` is the part's."""

    calls: list[Call]
    factor: float = 1.0


def _some(layers: Sequence[T]) -> tuple[Sequence[T], float]:
    """The layers to run over and what their time is multiplied by."""
    some = layers[:TIMED_LAYERS]
    return some, len(layers) / len(some)


def _batches(model: HybridModel, shape: StepShape, num_bytes: int) -> list[StepBatch]:
    """Batches of one shape on different slots and pages, as many as the cache makes necessary."""
    return [model.batch(shape, seed) for seed in range(min(_MAX_BATCHES, rotations(num_bytes)))]


def dense(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(tokens,): every layer without its mixing over time and its routed experts; the embedding."""
    batch = model.batch(StepShape(((at[0], 0),), ()), 0)
    count = len(batch.tokens)
    mixers = {type(layer.mixer): layer.mixer for layer in model.layers}
    mixed = {kind: model.place.random(count, x.output.shape[1]) for kind, x in mixers.items()}
    convolved = model.place.random(count, model.recurrent_layers[0].channels)

    def mix(layer: Layer, projected: torch.Tensor) -> torch.Tensor:
        is_recurrent = isinstance(layer.mixer, RecurrentMixer)
        layer.mixer.prepare(projected, convolved if is_recurrent else projected, batch)
        return mixed[type(layer.mixer)]

    def feed(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        return layer.ffn.dense(x).shared if isinstance(layer.ffn, Moe) else layer.ffn(x)

    return Part([lambda: model.run_layers(batch, mix, feed)])


def head(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(rows,): final norm, logits and the most likely token of that many rows."""
    residual, delta = (model.place.random(at[0], model.spec.hidden) for _ in range(2))
    ends = torch.arange(at[0], device=model.place.device)
    return Part([lambda: model.next_tokens(model.last(delta, residual, ends))])


def experts(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(tokens,): routing by uniform scores, the experts' products and their sum."""
    layers, factor = _some(model.expert_layers)
    tokens, spec, device = at[0], layers[0].spec, model.place.device
    x, shared = (model.place.random(tokens, model.spec.hidden) for _ in range(2))
    logits = model.place.random(tokens, spec.num_experts)
    gate = model.place.random(tokens) if spec.shared_gate else None
    dense = DenseParts(shared, logits, gate)

    def call_on(seed: int) -> Call:
        generator = torch.Generator(device).manual_seed(seed)
        size = (tokens + NUM_SCORE_OFFSETS, spec.num_experts)
        scores = torch.rand(size, generator=generator, device=device)

        def call() -> None:
            for index, layer in enumerate(layers):
                layer.routed(x, dense, scores[index : index + tokens])

        return call

    # What a draw of few tokens costs depends on how many of their experts coincide.
    return Part([call_on(seed) for seed in range(4 if tokens < 512 else 1)], factor)


def _mixing(
    model: HybridModel, mixers: Sequence[Mixer], shape: StepShape, layer_bytes: int
) -> Part:
    """convolve and mix of some of the mixers; `layer_bytes`: what each moves of states or KV."""
    some, factor = _some(mixers)
    batches = _batches(model, shape, layer_bytes * len(some))
    first = batches[0]
    projected = model.place.random(len(first.tokens), some[0].input.shape[0])
    inputs = some[0].prepare(projected, some[0].convolve(projected, first), first)

    def call_on(batch: StepBatch) -> Call:
        def call() -> None:
            for mixer in some:
                mixer.convolve(projected, batch)
                mixer.mix(inputs, batch)

        return call

    return Part([call_on(batch) for batch in batches], factor)


def _recurrent(model: HybridModel, shape: StepShape) -> Part:
    sequences = len(shape.chunks) + len(shape.contexts)
    state_bytes = 4 * model.states[0, 0].numel()
    return _mixing(model, model.recurrent_layers, shape, sequences * state_bytes)


def recurrent_prefill(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(tokens of a sequence, sequences), each with a state to start from."""
    return _recurrent(model, StepShape(((at[0], 16),) * at[1], ()))


def recurrent_decode(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(requests,)."""
    return _recurrent(model, StepShape((), (16,) * at[0]))


def _full(model: HybridModel, shape: StepShape, num_tokens_read: int) -> Part:
    token_bytes = model.spec.attention_layers[0].kv_bytes_per_token(model.spec.dtypes)
    return _mixing(model, model.attention_layers, shape, num_tokens_read * token_bytes)


def full_prefill(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(new tokens, prefix tokens) of one sequence."""
    return _full(model, StepShape(((at[0], at[1]),), ()), sum(at))


def full_prefill_of_4(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(new tokens, prefix tokens) of each of four equal sequences, which share the GPU."""
    return _full(model, StepShape(((at[0], at[1]),) * 4, ()), 4 * sum(at))


def full_decode(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(requests, context tokens of each)."""
    return _full(model, StepShape((), (at[1],) * at[0]), at[0] * at[1])


def copy(model: HybridModel, at: tuple[int, ...]) -> Part:
    """(slots,): states and convolution states of that many slots copied, all layers."""

    def call_on(seed: int) -> Call:
        device = model.place.device
        generator = torch.Generator(device).manual_seed(seed)
        order = torch.randperm(model.num_slots, generator=generator, device=device).int()
        return partial(model.copy_states, order[: at[0]], order[at[0] : 2 * at[0]])

    state_bytes = 2 * at[0] * model.states[:, 0].numel() * 4
    return Part([call_on(seed) for seed in range(min(_MAX_BATCHES, rotations(state_bytes)))])


PARTS: dict[str, Callable[[HybridModel, tuple[int, ...]], Part]] = {
    "dense": dense,
    "head": head,
    "experts": experts,
    "recurrent_prefill": recurrent_prefill,
    "recurrent_decode": recurrent_decode,
    "full_prefill": full_prefill,
    "full_prefill_of_4": full_prefill_of_4,
    "full_decode": full_decode,
    "copy": copy,
}


def parts_of(model: HybridModel) -> list[str]:
    """The parts that the model's steps have."""
    return [name for name in PARTS if name != "experts" or model.expert_layers]
