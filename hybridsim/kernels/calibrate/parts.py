"""The parts of a step, each over all its layers, as calls to be timed.

A step is: the dense part (all that depends on the number of tokens alone: projections, MLPs, norms,
gates, rotary embedding, KV writes), the head, and for recurrent and full layers a prefill and a
decode part. Each is run over all layers of its kind, as in a step, so that weights, states and
pages come from memory and not from the cache.
"""

from collections.abc import Callable

import torch

from hybridsim.kernels import rows
from hybridsim.kernels.attention import query_block
from hybridsim.kernels.bench.timing import Call, rotations
from hybridsim.kernels.model.batch import StepBatch, StepShape, make_batch
from hybridsim.kernels.model.model import HybridModel, Layer
from hybridsim.kernels.recurrence.chunked import CHUNK_SIZE

# A part at one point of its grid, as calls on different slots and pages.
MakeCalls = Callable[[HybridModel, tuple[int, ...]], list[Call]]


def batch_of(model: HybridModel, shape: StepShape, seed: int) -> StepBatch:
    """A batch on random slots and pages of the model."""
    block = query_block(model.caches[0], shape.num_prefill_tokens, model.shape.heads)
    return make_batch(shape, model.num_pages, model.num_slots, block, CHUNK_SIZE, seed)


def _rotated(model: HybridModel, shape: StepShape, num_bytes: int) -> list[StepBatch]:
    """Batches of one shape on different slots and pages, as many as the cache makes necessary."""
    return [batch_of(model, shape, seed) for seed in range(min(12, rotations(num_bytes)))]


def _random(rows_: int, width: int) -> torch.Tensor:
    return torch.randn(rows_, width, device="cuda").to(torch.bfloat16)


def _of_kind(model: HybridModel, is_full: bool) -> list[Layer]:
    return [layer for layer in model.layers if layer.is_full is is_full]


def dense(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(tokens,): every layer without its mixing over time, and the embedding."""
    batch = batch_of(model, StepShape(((at[0], 0),), ()), 0)
    shape = model.shape
    mixed = {
        True: _random(at[0], shape.heads * shape.head_size),
        False: _random(at[0], shape.value_heads * shape.value_size),
    }
    convolved = _random(at[0], shape.conv_channels)

    def call() -> torch.Tensor:
        residual = torch.nn.functional.embedding(batch.tokens.long(), model.embedding)
        delta = None
        full = 0
        for layer in model.layers:
            projected = model.enter(layer, delta, residual)
            if layer.is_full:
                model.place(layer, full, projected, batch)
                full += 1
            else:
                model.gates(layer, convolved, projected)
            delta = model.leave(layer, mixed[layer.is_full], projected, residual)
        assert delta is not None
        return delta

    return [call]


def head(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(rows,): final norm, logits and the most likely token of that many rows."""
    residual, delta = (_random(at[0], model.shape.hidden) for _ in range(2))
    ends = torch.arange(at[0], device="cuda")
    return [lambda: model.next_tokens(model.last(delta, residual, ends))]


def _recurrent(model: HybridModel, shape: StepShape) -> list[Call]:
    sizes, tokens = model.shape, shape.num_tokens
    width = sizes.conv_channels + sizes.value_heads * (sizes.value_size + 2)
    projected = _random(tokens, width)
    layers = _of_kind(model, is_full=False)
    mixed = model.convolve(layers[0], 0, projected, batch_of(model, shape, 0))
    gates = model.gates(layers[0], mixed, projected)

    def call_on(batch: StepBatch) -> Call:
        def call() -> None:
            for index, layer in enumerate(layers):
                model.convolve(layer, index, projected, batch)
                model.recur(index, mixed, *gates, batch)

        return call

    num_sequences = len(shape.chunks) + len(shape.contexts)
    state_bytes = model.states[:, 0].numel() * 4 * num_sequences
    return [call_on(batch) for batch in _rotated(model, shape, state_bytes)]


def recurrent_prefill(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(tokens of a sequence, sequences), each with a state to start from."""
    return _recurrent(model, StepShape(((at[0], 16),) * at[1], ()))


def recurrent_decode(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(requests,)."""
    return _recurrent(model, StepShape((), (16,) * at[0]))


def _full(model: HybridModel, shape: StepShape, num_tokens_read: int) -> list[Call]:
    sizes, tokens = model.shape, shape.num_tokens
    layers = _of_kind(model, is_full=True)
    q = _random(tokens, sizes.heads * sizes.head_size).view(tokens, -1, sizes.head_size)
    k, v = (
        _random(tokens, sizes.kv_heads * sizes.head_size).view(tokens, -1, sizes.head_size)
        for _ in range(2)
    )

    def call_on(batch: StepBatch) -> Call:
        def call() -> None:
            for index in range(len(layers)):
                model.attend(index, q, k, v, batch)

        return call

    row_bytes = 4 * sizes.kv_heads * sizes.head_size * len(layers)
    return [call_on(batch) for batch in _rotated(model, shape, num_tokens_read * row_bytes)]


def full_prefill(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(new tokens, prefix tokens) of one sequence."""
    return _full(model, StepShape((at,), ()), sum(at))  # type: ignore[arg-type]


def full_decode(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(requests, context tokens of each)."""
    return _full(model, StepShape((), (at[1],) * at[0]), at[0] * at[1])


def copy(model: HybridModel, at: tuple[int, ...]) -> list[Call]:
    """(slots,): states and convolution states of that many slots copied, all layers."""

    def call_on(seed: int) -> Call:
        generator = torch.Generator(device="cuda").manual_seed(seed)
        order = torch.randperm(model.num_slots, generator=generator, device="cuda").int()
        sources, targets = order[: at[0]], order[at[0] : 2 * at[0]]

        def call() -> None:
            rows.copy_rows(model.states, sources, targets)
            rows.copy_rows(model.conv_states, sources, targets)

        return call

    state_bytes = 2 * at[0] * model.states[:, 0].numel() * 4
    return [call_on(seed) for seed in range(min(12, rotations(state_bytes)))]


PARTS: dict[str, MakeCalls] = {
    "dense": dense,
    "head": head,
    "recurrent_prefill": recurrent_prefill,
    "recurrent_decode": recurrent_decode,
    "full_prefill": full_prefill,
    "full_decode": full_decode,
    "copy": copy,
}
