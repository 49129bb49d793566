"""The memory ledger of a hybrid: what a context, a checkpoint and the crossover cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from hybridsim.models.spec import ModelSpec
from hybridsim.models.twins import all_full


@dataclass(frozen=True)
class LedgerRow:
    """Bytes of one request at one context length: KV everywhere, against KV and one state.

    checkpoint_ratio: bytes of a checkpoint over the KV bytes of that many tokens, which is what
    checkpoints at that spacing cost compared with the KV they make reusable.
    """

    context_tokens: int
    all_full_bytes: int
    hybrid_bytes: int
    checkpoint_ratio: float

    @property
    def ratio(self) -> float:
        """Hybrid over all full."""
        return self.hybrid_bytes / self.all_full_bytes


@dataclass(frozen=True)
class Ledger:
    """Fixed figures of a model (or of one rank of it).

    all_full_kv_bytes_per_token: were every recurrent layer an attention layer.
    checkpoint_tokens: tokens whose KV takes as many bytes as one state, rounded down.
    crossover_tokens: longest context, rounded down, at which the hybrid does not yet take less
    memory than all full attention. Both None without both kinds of layer.
    """

    kv_bytes_per_token: int
    all_full_kv_bytes_per_token: int
    recurrent_bytes: int
    conv_bytes: int
    state_bytes: int
    checkpoint_tokens: int | None
    crossover_tokens: int | None


def ledger(spec: ModelSpec) -> Ledger:
    """The fixed figures of `spec`."""
    kv = spec.kv_bytes_per_token
    full = all_full(spec).kv_bytes_per_token if spec.attention_layers else 0
    return Ledger(
        kv_bytes_per_token=kv,
        all_full_kv_bytes_per_token=full,
        recurrent_bytes=spec.recurrent_bytes,
        conv_bytes=spec.conv_bytes,
        state_bytes=spec.state_bytes,
        checkpoint_tokens=spec.state_bytes // kv if kv and spec.state_bytes else None,
        crossover_tokens=spec.state_bytes // (full - kv) if full > kv else None,
    )


def ledger_rows(spec: ModelSpec, contexts: Sequence[int]) -> list[LedgerRow]:
    """One row for each context length (tokens, positive); UserError without attention layers."""
    full = all_full(spec)
    return [
        LedgerRow(
            context_tokens=tokens,
            all_full_bytes=full.kv_bytes(tokens),
            hybrid_bytes=spec.kv_bytes(tokens) + spec.state_bytes,
            checkpoint_ratio=spec.state_bytes / spec.kv_bytes(tokens),
        )
        for tokens in contexts
    ]
