"""The kinds of recurrence: what each has in weights, convolution channels and operations.

Counts of weights follow the published model code of each family (named beside each function);
counts of operations follow the equations, 2 FLOPs a multiply-add.
"""

from collections.abc import Callable
from dataclasses import dataclass

from hybridsim.models.dtypes import Dtypes, num_bytes

CHUNK_TOKENS = 64  # of the chunked form; what flash-linear-attention and the engines use


@dataclass(frozen=True)
class ConvSpec:
    """A causal depthwise convolution.

    columns: how many past inputs a request keeps. kernel - 1 are needed; transformers keeps
    `kernel`, and engines add one for each draft token.
    """

    kernel: int
    channels: int
    columns: int

    def bytes_kept(self, dtypes: Dtypes) -> int:
        return num_bytes(self.columns * self.channels, dtypes.conv)


@dataclass(frozen=True)
class RecurrentShape:
    """Dimensions of one recurrent layer. `kind` is a key of KINDS; dt_rank is Mamba1's alone.

    The state has num_value_heads x value_dim x key_dim elements. For Mamba2 read: value heads of
    value_dim = heads of head_dim, key heads = groups, key_dim = state size. For Mamba1: as many
    value heads of width 1 as inner channels, key_dim = state size.
    """

    kind: str
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv: ConvSpec | None = None
    dt_rank: int = 0

    @property
    def key_width(self) -> int:
        return self.num_key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        return self.num_value_heads * self.value_dim

    @property
    def state_elements(self) -> int:
        return self.value_width * self.key_dim

    @property
    def conv_weights(self) -> int:
        return self.conv.kernel * self.conv.channels if self.conv else 0


@dataclass(frozen=True)
class Kind:
    """What differs between the recurrences.

    matmul_params, other_params: weights in a layer of a model `hidden` wide. conv_channels: width
    of the convolution. flops_per_state_element: of one decode step. chunk_flops: of CHUNK_TOKENS
    tokens in the whole layer, None where prefill runs the recurrence itself.
    """

    matmul_params: Callable[[RecurrentShape, int], int]
    other_params: Callable[[RecurrentShape, int], int]
    conv_channels: Callable[[RecurrentShape], int]
    flops_per_state_element: int
    chunk_flops: Callable[[RecurrentShape], int] | None


def _qkv_channels(spec: RecurrentShape) -> int:
    return 2 * spec.key_width + spec.value_width


def _deltanet_matmul(spec: RecurrentShape, hidden: int) -> int:
    """Queries, keys, values; output gate; decay and write strength per head; output."""
    return hidden * (_qkv_channels(spec) + 2 * spec.value_width + 2 * spec.num_value_heads)


def _deltanet_other(spec: RecurrentShape, hidden: int) -> int:
    return spec.conv_weights + 2 * spec.num_value_heads + spec.value_dim


def _kda_matmul(spec: RecurrentShape, hidden: int) -> int:
    """Queries, keys, values, output; low-rank decay and output gate; write strength per head."""
    gates = (hidden + spec.key_width) * spec.key_dim + (hidden + spec.value_width) * spec.value_dim
    return hidden * (_qkv_channels(spec) + spec.value_width + spec.num_value_heads) + gates


def _kda_other(spec: RecurrentShape, hidden: int) -> int:
    return spec.conv_weights + spec.num_value_heads + spec.key_width + spec.value_dim


def _mamba2_matmul(spec: RecurrentShape, hidden: int) -> int:
    """Gate, inputs, B and C, time step per head; output."""
    return hidden * (3 * spec.value_width + 2 * spec.key_width + spec.num_value_heads)


def _mamba2_other(spec: RecurrentShape, hidden: int) -> int:
    bias = spec.conv.channels if spec.conv else 0
    return spec.conv_weights + bias + 3 * spec.num_value_heads + spec.value_width


def _mamba1_matmul(spec: RecurrentShape, hidden: int) -> int:
    """Gate and inputs; time step (low rank), B and C from the inputs; output."""
    inner = spec.value_width
    return 3 * hidden * inner + inner * (2 * spec.dt_rank + 2 * spec.key_dim)


def _mamba1_other(spec: RecurrentShape, hidden: int) -> int:
    """With Jamba's norms over time step, B and C."""
    bias = spec.conv.channels if spec.conv else 0
    inner = spec.value_width
    norms = spec.dt_rank + 2 * spec.key_dim
    return spec.conv_weights + bias + spec.state_elements + 2 * inner + norms


def _lightning_matmul(spec: RecurrentShape, hidden: int) -> int:
    """Queries, keys, values; output gate; output."""
    return hidden * (_qkv_channels(spec) + 2 * spec.value_width)


def _delta_rule_chunk(spec: RecurrentShape) -> int:
    """WY form. Within a chunk: K K^T, its triangular inverse, W, U, Q K^T and its product with the
    corrected values; with the state: W S, Q S and K^T V. Dense tiles are counted in full, and keys
    are repeated for each value head, as the kernels do.
    """
    size, key, value = CHUNK_TOKENS, spec.key_dim, spec.value_dim
    within = 2 * size**2 * (3 * key + 2 * value) + 2 * size**3 // 3
    return spec.num_value_heads * (within + 6 * size * key * value)


def _linear_chunk(spec: RecurrentShape) -> int:
    """Q K^T once a key head, its product with the values, Q S and K^T V once a value head."""
    size, key, value = CHUNK_TOKENS, spec.key_dim, spec.value_dim
    per_value_head = 2 * size**2 * value + 4 * size * key * value
    return 2 * size**2 * spec.key_width + spec.num_value_heads * per_value_head


# Operations of a decode step on each state element. Delta rule: decay 1, S k 2, rank-one update 2,
# readout 2. Linear attention: the same without S k. Mamba1: exp(dt A) 2, decay 1, dt B x 2, sum 1,
# readout 2.
KINDS: dict[str, Kind] = {
    "gated_deltanet": Kind(_deltanet_matmul, _deltanet_other, _qkv_channels, 7, _delta_rule_chunk),
    "kda": Kind(_kda_matmul, _kda_other, _qkv_channels, 7, _delta_rule_chunk),
    "mamba2": Kind(_mamba2_matmul, _mamba2_other, _qkv_channels, 5, _linear_chunk),
    "mamba1": Kind(_mamba1_matmul, _mamba1_other, lambda spec: spec.value_width, 8, None),
    "lightning": Kind(
        _lightning_matmul, lambda spec, hidden: spec.value_width, lambda spec: 0, 5, _linear_chunk
    ),
    # The Marconi artifact's own accounting: 6 d^2 weights, a state of d x n although the inner
    # width is 2 d, a convolution over 2 d + 2 n, and 16 FLOPs on each state element.
    "marconi_mamba": Kind(
        lambda spec, hidden: 6 * hidden * spec.value_width,
        lambda spec, hidden: spec.conv_weights,
        lambda spec: 2 * (spec.value_width + spec.key_width),
        16,
        None,
    ),
}
