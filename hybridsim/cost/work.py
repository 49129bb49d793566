"""What the parts of a step compute and move, one launch after the other. Knows no GPU."""

from collections.abc import Sequence
from typing import NamedTuple

from hybridsim.cost import efficiency as classes
from hybridsim.cost.base import PrefillChunk
from hybridsim.cost.counts import AttentionCount, StepCounts


class Work(NamedTuple):
    """FLOPs and bytes of `num_launches` equal launches, which share the longer of the two floors.

    part: the class of kernels; kind: of the layer, where kernels differ within a class.
    """

    part: str
    flops: float
    moved_bytes: float
    num_launches: int = 0
    kind: str = ""


def step_work(
    counts: StepCounts,
    chunks: Sequence[PrefillChunk],
    num_decodes: int,
    decode_context_tokens: int,
    copied_bytes: int = 0,
) -> list[Work]:
    """All of one step; arguments as those of a cost model."""
    num_tokens = sum(chunk.num_new_tokens for chunk in chunks) + num_decodes
    work = fixed_work(counts, num_tokens, len(chunks) + num_decodes, num_decodes)
    work += prefill_work(counts, chunks)
    if copied_bytes:
        work.append(copy_work(copied_bytes))
    if num_decodes:
        for kind in counts.attention:
            num_keys = keys_read(kind, num_decodes, decode_context_tokens)
            work.append(attention_decode_work(kind, num_decodes, num_keys))
    return work


def fixed_work(counts: StepCounts, num_tokens: int, num_rows: int, num_decodes: int) -> list[Work]:
    """All that no context changes; nothing where nothing is computed (copies alone)."""
    if not num_tokens:
        return []
    scans = scan_decode_work(counts, num_decodes) if num_decodes else []
    return token_work(counts, num_tokens, num_rows) + scans


def token_work(counts: StepCounts, num_tokens: int, num_rows: int) -> list[Work]:
    """What depends on the number of tokens only; `num_rows` of them get logits."""
    dense_bytes = counts.dense_weight_bytes + num_tokens * counts.dense_io_bytes_per_token
    head_bytes = counts.head_weight_bytes + num_rows * counts.head_io_bytes_per_row
    dense_flops = 2 * num_tokens * counts.dense_params
    work = [
        Work(classes.MATMUL, dense_flops, dense_bytes, counts.num_products),
        Work(classes.POINTWISE, 0, num_tokens * counts.pointwise_bytes_per_token),
        Work(classes.HEAD, 2 * num_rows * counts.head_params, head_bytes, 1),
    ]
    for kind in counts.experts:
        touched_bytes = kind.spec.num_touched_experts(num_tokens) * kind.expert_bytes
        moved_bytes = touched_bytes + num_tokens * kind.io_bytes_per_token
        flops = num_tokens * kind.flops_per_token
        work.append(Work(classes.EXPERTS, flops, moved_bytes, kind.num_layers))
    return work


def prefill_work(counts: StepCounts, chunks: Sequence[PrefillChunk]) -> list[Work]:
    """Attention and recurrences of chunks: one launch for all, so they share its two floors."""
    if not chunks:
        return []
    work = [one for kind in counts.attention for one in _attention_prefill(kind, chunks)]
    num_tokens = sum(chunk.num_new_tokens for chunk in chunks)
    for kind in counts.recurrent:
        flops = kind.num_layers * sum(kind.spec.prefill_flops(x.num_new_tokens) for x in chunks)
        # Each chunk reads a state and writes one.
        moved_bytes = 2 * len(chunks) * kind.state_bytes + num_tokens * kind.io_bytes_per_token
        work.append(Work(classes.SCAN_PREFILL, flops, moved_bytes, kind.num_layers, kind.spec.kind))
    return work


def _attention_prefill(kind: AttentionCount, chunks: Sequence[PrefillChunk]) -> list[Work]:
    """New tokens among themselves, and with their prefixes, which lie in pages."""
    flops = moved_bytes = prefix_flops = prefix_bytes = 0
    window = kind.spec.window
    for chunk in chunks:
        new, prefix = chunk.num_new_tokens, chunk.num_prefix_tokens
        alone = kind.num_layers * kind.spec.prefill_flops(new, 0)
        flops += alone
        # New keys and values are written and read, those of the prefix only read.
        moved_bytes += new * (2 * kind.kv_bytes_per_token + kind.io_bytes_per_token)
        prefix_flops += kind.num_layers * kind.spec.prefill_flops(new, prefix) - alone
        read = prefix if window is None else min(prefix, window)
        prefix_bytes += read * kind.kv_bytes_per_token
    work = [Work(classes.ATTENTION_PREFILL, flops, moved_bytes, kind.num_layers, kind.name)]
    if prefix_bytes:
        work.append(Work(classes.ATTENTION_PREFIX, prefix_flops, prefix_bytes, 0, kind.name))
    return work


def scan_decode_work(counts: StepCounts, num_decodes: int) -> list[Work]:
    """Every request's state is read and written."""
    return [
        Work(
            classes.SCAN_DECODE,
            num_decodes * kind.decode_flops,
            num_decodes * (2 * kind.state_bytes + kind.io_bytes_per_token),
            kind.num_layers,
            kind.spec.kind,
        )
        for kind in counts.recurrent
    ]


def attention_decode_work(kind: AttentionCount, num_decodes: int, num_keys: int) -> Work:
    """`num_keys` are read by all requests together, their own new ones among them and written."""
    own_bytes = num_decodes * (kind.kv_bytes_per_token + kind.io_bytes_per_token)
    return Work(
        classes.ATTENTION_DECODE,
        num_keys * kind.decode_flops_per_key,
        num_keys * kind.kv_bytes_per_token + own_bytes,
        kind.num_layers,
        kind.name,
    )


def keys_read(kind: AttentionCount, num_decodes: int, context_tokens: int) -> int:
    """Keys that decoding requests attend to, with a window taken as equally long contexts."""
    keys = context_tokens + num_decodes
    return keys if kind.spec.window is None else min(keys, num_decodes * kind.spec.window)


def copy_work(copied_bytes: int) -> Work:
    """States copied from slot to slot, all layers in one launch: read and written."""
    return Work(classes.COPY, 0, 2 * copied_bytes, 1)
