"""What one step of a model computes and moves, counted once per model. Knows no GPU."""

from collections import Counter
from dataclasses import dataclass

from hybridsim.models import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, RecurrentSpec
from hybridsim.models.dtypes import num_bytes

# Reads and writes of hidden-sized vectors around each mixer or FFN: the residual sum and the norm
# read two and write two, fused as engines do. Operators that change a vector in place (norms of
# heads, rotary embedding) read and write it; gates and gated activations read two and write one.
_RESIDUAL, _IN_PLACE, _GATE = 4, 2, 3


@dataclass(frozen=True)
class AttentionCount:
    """Equal attention layers taken together; bytes and FLOPs of all of them."""

    spec: AttentionSpec
    num_layers: int
    kv_bytes_per_token: int
    io_bytes_per_token: int
    decode_flops_per_key: int

    @property
    def name(self) -> str:
        """What kernels tell apart: a latent for all heads, or keys and values."""
        return "mla" if self.spec.latent else "gqa"


@dataclass(frozen=True)
class RecurrentCount:
    """Equal recurrent layers taken together."""

    spec: RecurrentSpec
    num_layers: int
    state_bytes: int
    io_bytes_per_token: int
    decode_flops: int


@dataclass(frozen=True)
class ExpertCount:
    """Equal expert layers taken together; the router and shared experts are among the dense."""

    spec: MoeSpec
    num_layers: int
    expert_bytes: int
    flops_per_token: int
    io_bytes_per_token: int


@dataclass(frozen=True)
class StepCounts:
    """Everything that a step's time is made of.

    dense_params: weights of matrix products that every token passes, embeddings aside. *_io:
    bytes of their inputs and outputs. num_products: how many products these are. num_sublayers:
    mixers and FFNs, an all-reduce each.
    """

    dense_params: int
    num_products: int
    dense_weight_bytes: int
    dense_io_bytes_per_token: int
    head_params: int
    head_weight_bytes: int
    head_io_bytes_per_row: int
    pointwise_bytes_per_token: int
    hidden_bytes: int
    num_layers: int
    num_sublayers: int
    attention: tuple[AttentionCount, ...]
    recurrent: tuple[RecurrentCount, ...]
    experts: tuple[ExpertCount, ...]


def count_step(model: ModelSpec) -> StepCounts:
    """The counts of `model`, or of the rank that it is."""
    hidden, act_bytes = model.hidden, model.dtypes.activation_bytes
    dense = [mixer.matmul_params(hidden) for mixer in _mixers(model)]
    dense += [_dense_ffn_params(ffn, hidden) for ffn in model.ffn_layers]
    num_sublayers = sum(layer.num_norms for layer in model.layers)
    return StepCounts(
        dense_params=sum(dense),
        num_products=sum(map(_num_products, (*_mixers(model), *model.ffn_layers))),
        dense_weight_bytes=num_bytes(sum(dense), model.dtypes.weights),
        dense_io_bytes_per_token=act_bytes * sum(_io_elements(x, hidden) for x in dense),
        head_params=model.head_params,
        head_weight_bytes=num_bytes(model.head_params, model.dtypes.weights),
        # Logits are written, and read by sampling.
        head_io_bytes_per_row=act_bytes * (hidden + 2 * model.vocab),
        pointwise_bytes_per_token=act_bytes * _pointwise_elements(model, num_sublayers),
        hidden_bytes=act_bytes * hidden,
        num_layers=len(model.layers),
        num_sublayers=num_sublayers,
        attention=tuple(
            _attention(model, *kind) for kind in Counter(model.attention_layers).items()
        ),
        recurrent=tuple(
            _recurrent(model, *kind) for kind in Counter(model.recurrent_layers).items()
        ),
        experts=tuple(
            _experts(model, spec, num)
            for spec, num in Counter(model.ffn_layers).items()
            if isinstance(spec, MoeSpec)
        ),
    )


def _mixers(model: ModelSpec) -> list[AttentionSpec | RecurrentSpec]:
    return [layer.mixer for layer in model.layers if layer.mixer is not None]


def _dense_ffn_params(ffn: MlpSpec | MoeSpec, hidden: int) -> int:
    """Weights that every token passes: all but the routed experts."""
    if isinstance(ffn, MoeSpec):
        return ffn.dense_matmul_params(hidden)
    return ffn.matmul_params(hidden)


def _num_products(part: AttentionSpec | RecurrentSpec | MlpSpec | MoeSpec) -> int:
    """Matrix products that every token passes: one into a mixer or MLP and one out of it; beside
    routed experts those of the shared one, its gate and the router."""
    if isinstance(part, MoeSpec):
        return 1 + (2 if part.shared_intermediate else 0) + part.shared_gate
    return 2


def _io_elements(params: int, hidden: int) -> int:
    """Inputs and outputs of a layer; its matrices have `hidden` on one side or the other."""
    return 2 * hidden + params // hidden if params else 0


def _pointwise_elements(model: ModelSpec, num_sublayers: int) -> int:
    """Elements moved a token between matrix products, by all layers."""
    elements = _RESIDUAL * model.hidden * num_sublayers
    for mixer in _mixers(model):
        elements += _mixer_elements(mixer)
    for ffn in model.ffn_layers:
        width = ffn.shared_intermediate if isinstance(ffn, MoeSpec) else ffn.intermediate
        elements += _activation_elements(width, ffn.gated)
    return elements


def _mixer_elements(mixer: AttentionSpec | RecurrentSpec) -> int:
    """Norms and rotary embedding of queries and keys, and the gate of the output."""
    if isinstance(mixer, RecurrentSpec):
        return 2 * _IN_PLACE * mixer.key_width + _GATE * mixer.value_width
    if mixer.latent is None:
        outputs = mixer.num_heads * mixer.head_dim
        turned = outputs + mixer.num_kv_heads * mixer.head_dim
    else:
        outputs = mixer.num_heads * mixer.latent.value_dim
        turned = (mixer.num_heads + 1) * mixer.latent.rope_dim + mixer.latent.kv_rank
    return _IN_PLACE * turned + (_GATE * outputs if mixer.output_gate else 0)


def _activation_elements(width: int, gated: bool) -> int:
    return (_GATE if gated else _IN_PLACE) * width


def _attention(model: ModelSpec, spec: AttentionSpec, num_layers: int) -> AttentionCount:
    return AttentionCount(
        spec,
        num_layers,
        kv_bytes_per_token=num_layers * spec.kv_bytes_per_token(model.dtypes),
        io_bytes_per_token=num_layers * model.dtypes.activation_bytes * spec.io_elements_per_token,
        decode_flops_per_key=num_layers * spec.decode_flops_per_key(),
    )


def _recurrent(model: ModelSpec, spec: RecurrentSpec, num_layers: int) -> RecurrentCount:
    return RecurrentCount(
        spec,
        num_layers,
        state_bytes=num_layers * spec.state_bytes(model.dtypes),
        io_bytes_per_token=num_layers * model.dtypes.activation_bytes * _scan_elements(spec),
        decode_flops=num_layers * spec.decode_flops(),
    )


def _scan_elements(spec: RecurrentSpec) -> int:
    """Inputs and outputs of the recurrence and of the convolution before it."""
    return spec.io_elements_per_token + (_IN_PLACE * spec.conv.channels if spec.conv else 0)


def _experts(model: ModelSpec, spec: MoeSpec, num_layers: int) -> ExpertCount:
    params = spec.expert_params(model.hidden)
    io_elements = _io_elements(params, model.hidden)
    io_elements += _activation_elements(spec.intermediate, spec.gated)
    io_elements *= spec.num_active
    return ExpertCount(
        spec,
        num_layers,
        expert_bytes=num_layers * num_bytes(params, model.dtypes.weights),
        flops_per_token=num_layers * 2 * spec.num_active * params,
        io_bytes_per_token=num_layers * model.dtypes.activation_bytes * io_elements,
    )
