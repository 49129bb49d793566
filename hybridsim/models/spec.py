"""A whole model as an explicit row of layers; everything counted in exact integers."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hybridsim.errors import UserError
from hybridsim.models.attention import AttentionSpec
from hybridsim.models.dtypes import Dtypes, dtype_named, num_bytes
from hybridsim.models.ffn import MlpSpec, MoeSpec
from hybridsim.models.recurrent import RecurrentSpec


@dataclass(frozen=True)
class LayerSpec:
    """One layer: a token mixer, a feed-forward part or both, each behind its own norm."""

    mixer: AttentionSpec | RecurrentSpec | None = None
    ffn: MlpSpec | MoeSpec | None = None

    @property
    def num_norms(self) -> int:
        return (self.mixer is not None) + (self.ffn is not None)

    def for_rank(self, tp: int) -> "LayerSpec":
        mixer = self.mixer.for_rank(tp) if self.mixer else None
        return LayerSpec(mixer, self.ffn.for_rank(tp) if self.ffn else None)


@dataclass(frozen=True)
class Flops:
    """FLOPs of some tokens, by what they are spent on (2 a multiply-add).

    matmul: projections, feed-forward parts and router. attention: scores and weighted values, the
    part that grows with the context. scan: recurrences with their convolutions. head: logits.
    """

    matmul: int
    attention: int
    scan: int
    head: int

    @property
    def total(self) -> int:
        return self.matmul + self.attention + self.scan + self.head


@dataclass(frozen=True)
class ModelSpec:
    """A decoder-only language model, or one tensor-parallel rank's share of it (`for_rank`).

    layers: in order. hidden, vocab: widths. tied: input and output embeddings are one matrix.
    source: where the shape is from; confidence: how sure that is (`checked`: agrees with a
    published config; `paper`: as its authors describe it; `illustrative`: made up; `given`: by
    the user).
    Vision towers and drafting heads are left out.
    """

    name: str
    layers: tuple[LayerSpec, ...]
    hidden: int
    vocab: int
    tied: bool
    dtypes: Dtypes = field(default_factory=Dtypes)
    source: str = "given"
    confidence: str = "given"
    tp: int = 1

    @cached_property
    def attention_layers(self) -> tuple[AttentionSpec, ...]:
        return tuple(x.mixer for x in self.layers if isinstance(x.mixer, AttentionSpec))

    @cached_property
    def recurrent_layers(self) -> tuple[RecurrentSpec, ...]:
        return tuple(x.mixer for x in self.layers if isinstance(x.mixer, RecurrentSpec))

    @cached_property
    def ffn_layers(self) -> tuple[MlpSpec | MoeSpec, ...]:
        return tuple(x.ffn for x in self.layers if x.ffn is not None)

    @property
    def is_hybrid(self) -> bool:
        return bool(self.recurrent_layers) and bool(self.attention_layers)

    # Bytes that requests and caches hold.

    @cached_property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's KV in all attention layers, windowed ones included."""
        return sum(x.kv_bytes_per_token(self.dtypes) for x in self.attention_layers)

    def kv_bytes(self, num_tokens: int) -> int:
        """KV bytes of a context of `num_tokens`; a windowed layer keeps its window only."""
        return sum(
            x.kv_bytes_per_token(self.dtypes) * min(num_tokens, x.window or num_tokens)
            for x in self.attention_layers
        )

    @cached_property
    def recurrent_bytes(self) -> int:
        """Bytes of the recurrent states of all layers, without convolution inputs."""
        return sum(x.recurrent_bytes(self.dtypes) for x in self.recurrent_layers)

    @cached_property
    def conv_bytes(self) -> int:
        """Bytes of the kept convolution inputs of all layers."""
        return sum(x.conv_bytes(self.dtypes) for x in self.recurrent_layers)

    @cached_property
    def state_bytes(self) -> int:
        """Bytes of one state (of a running request, or a checkpoint): recurrent and convolution."""
        return self.recurrent_bytes + self.conv_bytes

    # Parameters.

    def _mixers(self) -> Iterator[AttentionSpec | RecurrentSpec]:
        return (x.mixer for x in self.layers if x.mixer is not None)

    @cached_property
    def mixer_matmul_params(self) -> int:
        """Weights of all attention and recurrent projections."""
        return sum(x.matmul_params(self.hidden) for x in self._mixers())

    @cached_property
    def head_params(self) -> int:
        """Weights of the output embedding, tied or not."""
        return self.vocab * self.hidden

    @cached_property
    def embedding_params(self) -> int:
        """Weights of the input and output embeddings, counted once when tied."""
        return self.head_params * (1 if self.tied else 2)

    @cached_property
    def other_params(self) -> int:
        """Norms, convolutions, biases: what is in no matrix product."""
        norms = self.hidden * (1 + sum(x.num_norms for x in self.layers))
        inner = sum(x.other_params(self.hidden) for x in self._mixers())
        return norms + inner + sum(x.other_params(self.hidden) for x in self.ffn_layers)

    @cached_property
    def num_params(self) -> int:
        """All parameters of the text model."""
        ffn = sum(x.matmul_params(self.hidden) for x in self.ffn_layers)
        return self.embedding_params + self.mixer_matmul_params + ffn + self.other_params

    @cached_property
    def active_matmul_params(self) -> int:
        """Weights that one token passes through, embeddings aside."""
        ffn = sum(x.active_matmul_params(self.hidden) for x in self.ffn_layers)
        return self.mixer_matmul_params + ffn

    @cached_property
    def num_active_params(self) -> int:
        """All parameters but the experts that a token does not choose."""
        return self.embedding_params + self.active_matmul_params + self.other_params

    @cached_property
    def weight_bytes(self) -> int:
        return num_bytes(self.num_params, self.dtypes.weights)

    # Operations.

    def prefill_flops(self, num_tokens: int, num_prefix_tokens: int = 0) -> Flops:
        """A chunk of `num_tokens` after `num_prefix_tokens`, with the logits of its last token."""
        attention = sum(
            x.prefill_flops(num_tokens, num_prefix_tokens) for x in self.attention_layers
        )
        scan = sum(x.prefill_flops(num_tokens) for x in self.recurrent_layers)
        matmul = 2 * num_tokens * self.active_matmul_params
        return Flops(matmul, attention, scan, 2 * self.head_params)

    def decode_flops(self, context_tokens: int) -> Flops:
        """One new token after `context_tokens` earlier ones."""
        attention = sum(
            x.num_visible(context_tokens) * x.decode_flops_per_key() for x in self.attention_layers
        )
        scan = sum(x.decode_flops() for x in self.recurrent_layers)
        return Flops(2 * self.active_matmul_params, attention, scan, 2 * self.head_params)

    # Variants.

    def for_rank(self, tp: int) -> "ModelSpec":
        """The share of one of `tp` tensor-parallel ranks; its counts and bytes are the rank's.

        Heads, FFN channels and vocabulary are split; KV heads and key heads replicate when there
        are fewer than ranks; latents, routers and norms are copied. UserError where `tp` does not
        divide.
        """
        if isinstance(tp, bool) or not isinstance(tp, int) or tp < 1:
            raise UserError("tp", f"{tp!r} is not a number of ranks; allowed: integers from 1")
        if tp == 1:
            return self
        if self.tp != 1:
            raise UserError("tp", f"{self.name} is already one rank of {self.tp}")
        layers = tuple(layer.for_rank(tp) for layer in self.layers)
        return replace(self, layers=layers, vocab=-(-self.vocab // tp), tp=tp)

    def with_dtypes(self, **dtypes: str) -> "ModelSpec":
        """With other number formats, by the fields of Dtypes: `with_dtypes(kv="float8")`."""
        named: dict[str, Any] = {
            key: dtype_named(value, f"dtypes.{key}") for key, value in dtypes.items()
        }
        return replace(self, dtypes=replace(self.dtypes, **named))

    def with_conv_columns(self, num_extra: int) -> "ModelSpec":
        """Keeping kernel - 1 + `num_extra` columns: 1 as transformers, k for k draft tokens."""
        return replace(self, layers=tuple(_with_columns(x, num_extra) for x in self.layers))


def _with_columns(layer: LayerSpec, num_extra: int) -> LayerSpec:
    mixer = layer.mixer
    if not isinstance(mixer, RecurrentSpec) or mixer.conv is None:
        return layer
    conv = replace(mixer.conv, columns=mixer.conv.kernel - 1 + num_extra)
    return replace(layer, mixer=replace(mixer, conv=conv))
