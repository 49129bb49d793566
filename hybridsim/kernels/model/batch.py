"""One engine step as tensors: prefill chunks first, then one token for each decoding request."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hybridsim.kernels.plan import NO_SLOT, PackedPlan, SequenceTask, make_plan

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step has to do, in numbers: the arguments of a cost model.

    chunks: `(new tokens, prefix tokens)` a prefill chunk. contexts: tokens in context of each
    decoding request, the new one not counted.
    """

    chunks: tuple[tuple[int, int], ...]
    contexts: tuple[int, ...]

    @property
    def num_prefill_tokens(self) -> int:
        return sum(new for new, _ in self.chunks)

    @property
    def num_tokens(self) -> int:
        return self.num_prefill_tokens + len(self.contexts)

    @property
    def num_pages(self) -> int:
        """Pages that the step's requests hold, the new tokens' included."""
        totals = [new + prefix for new, prefix in self.chunks] + [c + 1 for c in self.contexts]
        return sum(-(-total // PAGE_SIZE) for total in totals)


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """Tensors of a step on the GPU; P prefill sequences and N decoding requests.

    plan, query_plan: the prefill sequences in chunks for the recurrence and for attention.
    prefix `[P]`, table `[P, pages]`: tokens and pages before the new ones. slots, lengths `[N]`,
    decode_table `[N, pages]`, index `[N]` = arange. rows `[T]`: page row of each new token's KV.
    positions `[T]`, tokens `[T]`, ends `[P + N]`: rows whose logits are wanted.
    """

    shape: StepShape
    plan: PackedPlan
    query_plan: PackedPlan
    prefix: torch.Tensor
    table: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    decode_table: torch.Tensor
    index: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor
    tokens: torch.Tensor
    ends: torch.Tensor


def _tables(totals: Sequence[int], free: list[int]) -> np.ndarray:
    """Page tables `[len(totals), widest]` of sequences of `totals` tokens; pages leave `free`."""
    counts = [-(-total // PAGE_SIZE) for total in totals]
    table = np.zeros((len(totals), max(counts, default=1)), dtype=np.int32)
    for n, count in enumerate(counts):
        table[n, :count] = [free.pop() for _ in range(count)]
    return table


def make_batch(
    shape: StepShape, num_pages: int, num_slots: int, query_block: int, chunk_size: int, seed: int
) -> StepBatch:
    """A step of that shape with pages and slots drawn at random from pools of the given sizes."""
    rng = np.random.default_rng(seed)
    new = [n for n, _ in shape.chunks]
    prefixes = [p for _, p in shape.chunks]
    free = rng.permutation(num_pages).tolist()
    table = _tables([n + p for n, p in shape.chunks], free)
    decode_table = _tables([c + 1 for c in shape.contexts], free)
    slots = rng.permutation(num_slots)[: len(new) + len(shape.contexts)].astype(np.int32)
    tasks = [
        SequenceTask(n, int(slot) if p else NO_SLOT, int(slot))
        for (n, p), slot in zip(shape.chunks, slots, strict=False)
    ]
    positions = [np.arange(p, p + n) for n, p in shape.chunks] + [np.array(shape.contexts)]
    owners = [np.full(n, i) for i, n in enumerate(new)]
    rows = [_rows(table, o, p) for o, p in zip(owners, positions, strict=False)]
    rows.append(_rows(decode_table, np.arange(len(shape.contexts)), positions[-1]))
    total = shape.num_prefill_tokens
    ends = np.concatenate([np.cumsum(new) - 1, total + np.arange(len(shape.contexts))])
    return StepBatch(
        shape,
        make_plan(tasks, chunk_size, "cuda"),
        make_plan([SequenceTask(n) for n in new], query_block, "cuda"),
        _gpu(prefixes), _gpu(table), _gpu(slots[len(new) :]), _gpu(np.array(shape.contexts) + 1),
        _gpu(decode_table), _gpu(np.arange(len(shape.contexts))), _gpu(np.concatenate(rows)),
        _gpu(np.concatenate(positions)), _gpu(rng.integers(0, 1000, shape.num_tokens)),
        _gpu(ends).long(),
    )  # fmt: skip


def _rows(table: np.ndarray, owners: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Row in the pool of pages of each token, given its sequence and its position."""
    owners, positions = owners.astype(np.int64), positions.astype(np.int64)
    return table[owners, positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE


def _gpu(values: Sequence[int] | np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.int32)).to("cuda")
