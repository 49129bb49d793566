"""Curves and surfaces as sums of steps: at so many bytes, so many more tokens hit."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hybridsim.request import Int64Array

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """`count` steps of `tokens` each, at `first`, `first + stride`, ...; int64, `[num_ramps]`."""

    first: Int64Array
    stride: Int64Array
    count: Int64Array
    tokens: Int64Array

    @staticmethod
    def points(at: Int64Array, tokens: Int64Array) -> "Steps":
        """One step each."""
        ones = np.ones(len(at), dtype=np.int64)
        return Steps(at, ones, ones, tokens)

    @staticmethod
    def ramps(first: Int64Array, stride: int, count: Int64Array, tokens: Int64Array) -> "Steps":
        """Equal strides. A stride of 0 means that all steps of a ramp come at once."""
        if stride == 0:
            return Steps.points(first, tokens * count)
        return Steps(first, np.full(len(first), stride, dtype=np.int64), count, tokens)

    @property
    def last(self) -> Int64Array:
        """Where each ramp ends."""
        return self.first + (self.count - 1) * self.stride

    def reached(self, size: int) -> Int64Array:
        """Steps of each ramp that lie at or below `size`."""
        return np.clip((size - self.first) // self.stride + 1, 0, self.count)

    def continues(self) -> NDArray[np.bool_]:
        """Whether each ramp goes on where the one before it ended, in steps of the same kind."""
        goes_on = np.zeros(len(self.first), dtype=bool)
        goes_on[1:] = self.first[1:] == self.last[:-1] + self.stride[1:]
        goes_on[1:] &= (self.stride[1:] == self.stride[:-1]) & (self.tokens[1:] == self.tokens[:-1])
        return goes_on

    def merged(self, goes_on: NDArray[np.bool_]) -> "Steps":
        """The same steps with every ramp joined to the one that it continues."""
        starts = np.flatnonzero(~goes_on)
        if len(starts) == len(self.first):
            return self
        count = np.add.reduceat(self.count, starts)
        return Steps(self.first[starts], self.stride[starts], count, self.tokens[starts])

    def moved(self, by: int) -> "Steps":
        """The same steps so much further out."""
        return Steps(self.first + by, self.stride, self.count, self.tokens)

    def chosen(self, rows: NDArray[np.bool_] | Int64Array) -> "Steps":
        """The ramps that a mask or a list of indices picks."""
        return Steps(self.first[rows], self.stride[rows], self.count[rows], self.tokens[rows])


class Curve:
    """Hit tokens as a function of capacity; exact at every capacity.

    num_prompt_tokens: of the measured requests; the denominator of the rate.
    """

    def __init__(self, steps: Steps, num_prompt_tokens: int) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.steps = steps.merged(steps.continues())
        is_point = self.steps.count == 1
        points = self.steps.chosen(is_point)
        order = np.argsort(points.first, kind="stable")
        self._point_sizes = points.first[order]
        self._point_sums = np.concatenate([[0], np.cumsum(points.tokens[order])])
        ramps = self.steps.chosen(~is_point)
        self._ramps = ramps.chosen(np.argsort(ramps.first, kind="stable"))

    def hit_tokens(self, capacities_bytes: Sequence[int] | Int64Array) -> Int64Array:
        """Tokens hit at each capacity, `[num_capacities]`. O(ramps) each and O(log points)."""
        sizes = np.asarray(capacities_bytes, dtype=np.int64)
        hits = self._point_sums[np.searchsorted(self._point_sizes, sizes, side="right")]
        return hits + np.array([self._ramp_tokens(int(size)) for size in sizes], dtype=np.int64)

    def token_hit_rate(self, capacities_bytes: Sequence[int] | Int64Array) -> FloatArray:
        """Hit tokens over prompt tokens at each capacity, `[num_capacities]`."""
        return self.hit_tokens(capacities_bytes) / max(self.num_prompt_tokens, 1)

    def _ramp_tokens(self, size: int) -> int:
        begun = int(np.searchsorted(self._ramps.first, size, side="right"))
        ramps = self._ramps
        count = np.minimum((size - ramps.first[:begun]) // ramps.stride[:begun] + 1,
                           ramps.count[:begun])  # fmt: skip
        return int((count * ramps.tokens[:begun]).sum())

    @cached_property
    def range_bytes(self) -> tuple[int, int]:
        """The capacity of the first hit, and the one from which on nothing is added."""
        if not len(self.steps.first):
            return 0, 0
        return int(self.steps.first.min()), int(self.steps.last.max())

    @property
    def ceiling(self) -> float:
        """The hit rate of unlimited memory."""
        return float(self.token_hit_rate([self.range_bytes[1]])[0])


class Surface:
    """Hit tokens as a function of (bytes of KV, state slots); exact at every point.

    A step counts once both pools have reached it; `kv` and `slots` run in parallel.
    """

    def __init__(self, kv: Steps, slots: Steps, num_prompt_tokens: int) -> None:
        goes_on = kv.continues() & slots.continues()
        self.kv, self.slots = kv.merged(goes_on), slots.merged(goes_on)
        self.num_prompt_tokens = num_prompt_tokens
        self._is_ramp = self.kv.count > 1

    def token_hit_rate(
        self, kv_bytes: Sequence[int] | Int64Array, state_slots: Sequence[int] | Int64Array
    ) -> FloatArray:
        """Hit rates `[num_kv_sizes, num_slot_counts]`; both lists must rise."""
        hits = self._point_hits(np.asarray(kv_bytes), np.asarray(state_slots))
        kv, slots = self.kv.chosen(self._is_ramp), self.slots.chosen(self._is_ramp)
        if len(kv.first):
            for row, size in enumerate(kv_bytes):
                reached = kv.reached(int(size))
                for column, count in enumerate(state_slots):
                    both = np.minimum(reached, slots.reached(int(count)))
                    hits[row, column] += int((both * kv.tokens).sum())
        return hits / max(self.num_prompt_tokens, 1)

    def along_budget(
        self, total_bytes: int, state_bytes: int, most: int = 512
    ) -> tuple[Int64Array, FloatArray]:
        """Slot counts, at most `most` and evenly spread, and the hit rate if KV gets the rest."""
        counts = np.unique(np.linspace(0, total_bytes // state_bytes, most).astype(np.int64))
        rates = np.empty(len(counts))
        for index, count in enumerate(counts.tolist()):
            kv = self.kv.reached(total_bytes - count * state_bytes)
            both = np.minimum(kv, self.slots.reached(count))
            rates[index] = (both * self.kv.tokens).sum() / max(self.num_prompt_tokens, 1)
        return counts, rates

    def _point_hits(self, kv_bytes: Int64Array, state_slots: Int64Array) -> Int64Array:
        """Two cumulative sums over a histogram of all single steps."""
        rows = np.searchsorted(kv_bytes, self.kv.first[~self._is_ramp], side="left")
        columns = np.searchsorted(state_slots, self.slots.first[~self._is_ramp], side="left")
        shape = (len(kv_bytes) + 1, len(state_slots) + 1)
        flat = np.zeros(shape[0] * shape[1], dtype=np.int64)
        np.add.at(flat, rows * shape[1] + columns, self.kv.tokens[~self._is_ramp])
        sums = flat.reshape(shape)[:-1, :-1].cumsum(axis=0).cumsum(axis=1)
        return np.asarray(sums)

    @cached_property
    def range_kv_bytes(self) -> tuple[int, int]:
        """KV bytes of the first hit, and from which on more KV adds nothing."""
        return _range(self.kv)

    @cached_property
    def range_slots(self) -> tuple[int, int]:
        """State slots of the first hit, and from which on more slots add nothing."""
        return _range(self.slots)


def _range(steps: Steps) -> tuple[int, int]:
    if not len(steps.first):
        return 0, 0
    return int(steps.first.min()), int(steps.last.max())
