"""One engine step as tensors: prefill chunks first, then one token for each decoding request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hybridsim.kernels.attention import PrefillWork, make_work
from hybridsim.kernels.plan import NO_SLOT, PackedPlan, SequenceTask, make_plan

PAGE_SIZE = 16
# A step of fewer tokens runs with this many rows, as engines pad their batches: the library's
# products with a vector are up to 14 % slower than those with a matrix of 8 rows.
MIN_ROWS = 8
# Layers read the random scores of experts from different rows on, so that each routes anew.
NUM_SCORE_OFFSETS = 64


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


@dataclass(frozen=True, slots=True)
class Pools:
    """What a batch draws from: pages and slots; block and chunk sizes of the kernels' plans, and
    heads of attention.

    num_experts: 0 without a router, else random scores are drawn that stand in for its own.
    """

    num_pages: int
    num_slots: int
    query_block: int
    num_heads: int
    chunk_size: int
    num_experts: int = 0
    device: str = "cuda"


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """Tensors of a step on the GPU; P prefill sequences, N decoding requests, T tokens, R rows.

    plan, work: the prefill sequences in chunks for the recurrence and in pieces for attention.
    table `[P, pages]`: pages of prefixes and new tokens. prefix_rows `[L]`: page rows of all
    prefixes one after another, each filled up to whole pages; prefix_table `[P, pages]`: where they
    lie among those. slots, lengths `[N]`, decode_table `[N, pages]`, index `[N]` = arange. rows
    `[R]`: page row of each new token's KV, -1 for none. positions `[R]`, tokens `[R]`, ends
    `[P + N]`: rows whose logits are wanted. scores `[T + NUM_SCORE_OFFSETS, E]` float32 or None.
    Rows from T on only fill up.
    """

    shape: StepShape
    plan: PackedPlan
    work: PrefillWork
    table: torch.Tensor
    prefix_rows: torch.Tensor
    prefix_table: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    decode_table: torch.Tensor
    index: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor
    tokens: torch.Tensor
    ends: torch.Tensor
    scores: torch.Tensor | None = None


def _num_pages(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_SIZE)


def _draw_pages(rng: np.random.Generator, num_pages: int, count: int) -> np.ndarray:
    """`count` pages in random order. Only where there are too few does one come up again."""
    rounds = [rng.permutation(num_pages) for _ in range(max(1, -(-count // num_pages)))]
    return np.concatenate(rounds)[:count]


def _tables(counts: Sequence[int], pages: np.ndarray) -> np.ndarray:
    """Page tables `[len(counts), widest]`: the next counts[n] of `pages` for sequence n."""
    table = np.zeros((len(counts), max([1, *counts])), dtype=np.int32)
    first = 0
    for n, count in enumerate(counts):
        table[n, :count] = pages[first : first + count]
        first += count
    return table


def _rows(table: np.ndarray, owners: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Row in the pool of pages of each token, given its sequence and its position."""
    owners, positions = owners.astype(np.int64), positions.astype(np.int64)
    return table[owners, positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE


def make_batch(shape: StepShape, pools: Pools, seed: int) -> StepBatch:
    """A step of that shape with pages and slots drawn at random from the pools."""
    rng = np.random.default_rng(seed)
    new, contexts = [n for n, _ in shape.chunks], np.array(shape.contexts, dtype=np.int64)
    counts = [_num_pages(n + p) for n, p in shape.chunks]
    decode_counts = [_num_pages(c + 1) for c in shape.contexts]
    pages = _draw_pages(rng, pools.num_pages, sum(counts) + sum(decode_counts))
    table, decode_table = _tables(counts, pages), _tables(decode_counts, pages[sum(counts) :])
    slots = rng.permutation(pools.num_slots)[: len(new) + len(contexts)].astype(np.int32)
    tasks = [
        SequenceTask(n, int(slot) if p else NO_SLOT, int(slot))
        for (n, p), slot in zip(shape.chunks, slots, strict=False)
    ]
    rows, positions = _places(shape, table, decode_table)
    ends = [np.cumsum(new) - 1, shape.num_prefill_tokens + np.arange(len(contexts))]

    def tensor(values: Any) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.int32)).to(pools.device)

    prefix_rows, prefix_table = _prefixes(shape, table)
    return StepBatch(
        shape,
        make_plan(tasks, pools.chunk_size, pools.device),
        make_work(shape.chunks, pools.query_block, pools.num_heads, pools.device),
        tensor(table), tensor(prefix_rows), tensor(prefix_table),
        tensor(slots[len(new) :]), tensor(contexts + 1),
        tensor(decode_table), tensor(np.arange(len(contexts))),
        tensor(rows), tensor(positions), tensor(rng.integers(0, 1000, len(rows))),
        tensor(np.concatenate(ends)).long(), _scores(shape, pools, seed),
    )  # fmt: skip


def _places(
    shape: StepShape, table: np.ndarray, decode_table: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """rows and positions of a StepBatch, with those that fill it up."""
    contexts = np.array(shape.contexts, dtype=np.int64)
    rows = [
        _rows(table, np.full(new, i), np.arange(prefix, prefix + new))
        for i, (new, prefix) in enumerate(shape.chunks)
    ]
    rows.append(_rows(decode_table, np.arange(len(contexts)), contexts))
    positions = [*(np.arange(prefix, prefix + new) for new, prefix in shape.chunks), contexts]
    filler = max(0, MIN_ROWS - shape.num_tokens)
    rows.append(np.full(filler, -1))
    positions.append(np.zeros(filler, dtype=np.int64))
    return np.concatenate(rows), np.concatenate(positions)


def _prefixes(shape: StepShape, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """prefix_rows and prefix_table of a StepBatch."""
    counts = [_num_pages(prefix) for _, prefix in shape.chunks]
    rows = [
        _rows(table, np.full(count * PAGE_SIZE, i), np.arange(count * PAGE_SIZE))
        for i, count in enumerate(counts)
    ]
    return np.concatenate([*rows, np.zeros(0)]), _tables(counts, np.arange(sum(counts)))


def _scores(shape: StepShape, pools: Pools, seed: int) -> torch.Tensor | None:
    """Uniform scores: every token's best experts are a uniform draw, alike for all layers."""
    if not pools.num_experts:
        return None
    generator = torch.Generator(pools.device).manual_seed(seed)
    size = (shape.num_tokens + NUM_SCORE_OFFSETS, pools.num_experts)
    return torch.rand(size, generator=generator, device=pools.device)
