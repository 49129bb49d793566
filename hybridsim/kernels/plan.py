"""Where packed sequences start, end and save their state; made once a step for all layers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hybridsim.kernels.launch import require

NO_SLOT = -1


@dataclass(frozen=True, slots=True)
class SequenceTask:
    """One sequence of a packed batch: `num_tokens` new tokens and the slots of its state.

    read_slot: slot that holds the state before the first token, or NO_SLOT for a zero state.
    write_slot: slot that receives the state after the last token, or NO_SLOT.
    checkpoints: `(position, slot)` pairs, positions counted in new tokens, 0 <= position <=
    num_tokens and not falling; any position is allowed, also off the chunk grid and repeated.
    """

    num_tokens: int
    read_slot: int = NO_SLOT
    write_slot: int = NO_SLOT
    checkpoints: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """The tables that kernels read. All int32, on one device.

    segments `[S, 3]`: first token, number of tokens, slot saved at its end (or NO_SLOT). A sequence
    is cut into segments at its checkpoints, so every save is at a segment's end; two saves at one
    position are a segment and an empty one.
    sequences `[N, 4]`: first segment, number of segments, read slot, first token.
    chunks `[num_chunks, 3]`: first token, number of tokens (1..chunk_size), sequence. A chunk never
    crosses a segment's end.
    """

    segments: torch.Tensor
    sequences: torch.Tensor
    chunks: torch.Tensor
    chunk_size: int
    num_tokens: int

    @property
    def num_sequences(self) -> int:
        return self.sequences.shape[0]

    @property
    def num_chunks(self) -> int:
        return self.chunks.shape[0]


def _segments_of(task: SequenceTask, first_token: int) -> list[tuple[int, int, int]]:
    saves = list(task.checkpoints)
    if task.write_slot != NO_SLOT or not saves or saves[-1][0] < task.num_tokens:
        saves.append((task.num_tokens, task.write_slot))
    rows, done = [], 0
    for position, slot in saves:
        require(
            done <= position <= task.num_tokens,
            f"checkpoint at {position}; allowed: rising, within 0..{task.num_tokens} tokens",
        )
        rows.append((first_token + done, position - done, slot))
        done = position
    return rows


def make_plan(
    tasks: Sequence[SequenceTask], chunk_size: int = 64, device: torch.device | str = "cpu"
) -> PackedPlan:
    """Tables for the sequences of `tasks`, packed one after another along T.

    Raises ValueError on a checkpoint outside its sequence or out of order.
    """
    require(chunk_size >= 1, f"chunk_size is {chunk_size}; allowed: at least 1")
    segments: list[tuple[int, int, int]] = []
    sequences: list[tuple[int, int, int, int]] = []
    chunks: list[tuple[int, int, int]] = []
    first_token = 0
    for index, task in enumerate(tasks):
        rows = _segments_of(task, first_token)
        sequences.append((len(segments), len(rows), task.read_slot, first_token))
        segments += rows
        for start, length, _ in rows:
            cuts = range(start, start + length, chunk_size)
            chunks += [(cut, min(chunk_size, start + length - cut), index) for cut in cuts]
        first_token += task.num_tokens
    return PackedPlan(
        int_table(segments, 3, device),
        int_table(sequences, 4, device),
        int_table(chunks, 3, device),
        chunk_size,
        first_token,
    )


def int_table(
    rows: Sequence[tuple[int, ...]], width: int, device: torch.device | str
) -> torch.Tensor:
    """int32 `[len(rows), width]` on `device`."""
    return torch.from_numpy(np.array(rows, dtype=np.int32).reshape(-1, width)).to(device)
