"""Recurrent layers: a state of fixed size per request, and the inputs of a short convolution."""

from dataclasses import dataclass, replace

from hybridsim.errors import unknown_name
from hybridsim.models.dtypes import Dtypes, num_bytes
from hybridsim.models.recurrences import CHUNK_TOKENS, KINDS, ConvSpec, Kind, RecurrentShape
from hybridsim.models.split import split_heads, split_shared


@dataclass(frozen=True)
class RecurrentSpec(RecurrentShape):
    """One recurrent layer; see RecurrentShape for the dimensions."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown_name("recurrent kind", self.kind, list(KINDS))

    @property
    def _kind(self) -> Kind:
        return KINDS[self.kind]

    def recurrent_bytes(self, dtypes: Dtypes) -> int:
        """Bytes of the recurrent state alone."""
        return num_bytes(self.state_elements, dtypes.state)

    def conv_bytes(self, dtypes: Dtypes) -> int:
        """Bytes of the kept convolution inputs."""
        return self.conv.bytes_kept(dtypes) if self.conv else 0

    def state_bytes(self, dtypes: Dtypes) -> int:
        """Bytes that a request (or a checkpoint) needs in this layer."""
        return self.recurrent_bytes(dtypes) + self.conv_bytes(dtypes)

    def matmul_params(self, hidden: int) -> int:
        """Weights used in matrix products, once a token each."""
        return self._kind.matmul_params(self, hidden)

    def other_params(self, hidden: int) -> int:
        """Convolution, decays, biases of gates, inner norms."""
        return self._kind.other_params(self, hidden)

    def decode_flops(self) -> int:
        """One token in the recurrent form: state update, readout and convolution."""
        return self._kind.flops_per_state_element * self.state_elements + 2 * self.conv_weights

    def prefill_flops(self, num_tokens: int) -> int:
        """`num_tokens` of one request in the form that prefill kernels use.

        The chunked form works on whole tiles, so a part of a chunk costs a chunk.
        """
        if self._kind.chunk_flops is None:
            return num_tokens * self.decode_flops()
        num_chunks = -(-num_tokens // CHUNK_TOKENS)
        return num_chunks * self._kind.chunk_flops(self) + num_tokens * 2 * self.conv_weights

    @property
    def io_elements_per_token(self) -> int:
        """Keys, queries, values and outputs of one token: what the scan moves besides states."""
        return 2 * self.key_width + 2 * self.value_width

    def for_rank(self, tp: int) -> "RecurrentSpec":
        """One rank's share: value heads are split, key heads (groups) replicate beyond one each."""
        share = replace(
            self,
            num_key_heads=split_shared(self.num_key_heads, tp, "recurrent key heads"),
            num_value_heads=split_heads(self.num_value_heads, tp, "recurrent value heads"),
        )
        if self.conv is None:
            return share
        return replace(share, conv=replace(self.conv, channels=share._kind.conv_channels(share)))


def recurrent(
    kind: str, num_key_heads: int, num_value_heads: int, key_dim: int, value_dim: int,
    conv_kernel: int = 0, dt_rank: int = 0,
) -> RecurrentSpec:  # fmt: skip
    """A layer whose convolution has the channels of its kind and keeps kernel - 1 columns."""
    spec = RecurrentSpec(kind, num_key_heads, num_value_heads, key_dim, value_dim, None, dt_rank)
    if conv_kernel < 2:
        return spec
    channels = KINDS[kind].conv_channels(spec)
    return replace(spec, conv=ConvSpec(conv_kernel, channels, conv_kernel - 1))
