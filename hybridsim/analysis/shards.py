"""Curves from a sample, for traces whose runs do not fit into memory or time.

SHARDS (Waldspurger et al., FAST 2015) keeps the blocks whose hash falls below a rate R and scales
stack distances by 1/R. It suits prefix caches because a prefix hit is a sum of block hits: under
LRU with the whole path touched, a block hits exactly if its own distance fits, whatever its
neighbours do. Blocks are sampled, not sessions: one hot root would decide everything otherwise.
Attention only, in blocks of the trace, by the rules of `hybridsim.analysis.blocks`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np

from hybridsim.analysis.steps import Curve, FloatArray, Steps
from hybridsim.errors import UserError
from hybridsim.request import Int64Array, Request

_MIX = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 4096  # requests hashed at once


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Hit rates `[num_capacities]`: the mean over seeds, and the half-width of the error bar.

    The bar is Student's t at 95 % over the seeds' spread; each seed samples other blocks. It does
    not cover the grain of the sample: capacities of few multiples of 1/R blocks are too coarse.
    """

    rate: FloatArray
    half_width: FloatArray
    num_sampled_blocks: int


# Two-sided 95 % quantiles of Student's t for 1 to 15 degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
        2.160, 2.145, 2.131)  # fmt: skip


def sampled_block_curve(
    requests: Iterable[Request], rate: float, seed: int, *, num_warmup: int = 0
) -> Curve:
    """One sample's curve over blocks; `requests` may stream. Memory O(sampled blocks alive).

    First blocks of prompts are all kept, since a hot one would shift the whole curve by being in
    the sample or not. The others stand for as many tokens as they are (ratio estimate).
    UserError for a rate outside (0, 1]. O(log n) a sampled block.
    """
    if not 0 < rate <= 1:
        raise UserError("--sample", f"{rate:g} is not allowed; allowed: a rate > 0 and <= 1")
    stack, stream = _Stack(1.0 / rate), iter(requests)
    kept, others = _Tally(), _Tally()
    mixer = np.uint64(np.random.default_rng(seed).integers(1, 2**63))
    num_seen = num_prompt_tokens = 0
    while chunk := list(islice(stream, _CHUNK)):
        for request, blocks in zip(chunk, _sampled(chunk, rate, mixer), strict=True):
            distances = stack.distances(blocks.names, blocks.is_first)
            num_seen += 1
            if num_seen <= num_warmup:
                continue
            num_prompt_tokens += request.num_prompt_tokens
            kept.num_tokens += blocks.first_tokens
            others.num_tokens += request.num_prompt_tokens - blocks.first_tokens
            rows = zip(distances, blocks.sizes, blocks.is_first, strict=True)
            for distance, size, is_first in rows:
                (kept if is_first else others).add(distance, size)
    first, rest = kept.steps(), others.steps()
    at = np.concatenate([first[0], rest[0]])
    return Curve(Steps.points(at, np.concatenate([first[1], rest[1]])), num_prompt_tokens)


@dataclass(slots=True)
class _Tally:
    """Sampled blocks of a kind, and the tokens of all of that kind."""

    num_tokens: int = 0
    num_sampled_tokens: int = 0
    distances: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def add(self, distance: float | None, size: int) -> None:
        self.num_sampled_tokens += size
        if distance is not None:
            self.distances.append(distance)
            self.sizes.append(size)

    def steps(self) -> tuple[Int64Array, Int64Array]:
        """Distances in blocks, and the tokens that each stands for (rounded at running sums)."""
        scale = self.num_tokens / max(self.num_sampled_tokens, 1)
        sums = np.rint(np.cumsum([0, *self.sizes]) * scale).astype(np.int64)
        return np.ceil(np.array(self.distances)).astype(np.int64), np.diff(sums)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The sampled blocks of a request, from the top down."""

    names: list[int]
    sizes: list[int]
    is_first: list[bool]
    first_tokens: int


def _sampled(chunk: Sequence[Request], rate: float, mixer: np.uint64) -> Iterator[_Blocks]:
    """Names a block by all content up to its end: a hash that runs along the prompt."""
    counts = np.array([len(request.prompt.ids) for request in chunk])
    begins = np.cumsum(counts) - counts
    ids = np.concatenate([request.prompt.ids for request in chunk]).view(np.uint64)
    ends = np.concatenate([request.prompt.ends for request in chunk])
    place = np.arange(len(ids)) - np.repeat(begins, counts)
    sizes = np.diff(ends, prepend=0)
    sizes[place == 0] = ends[place == 0]
    with np.errstate(over="ignore"):
        own = _mixed(ids ^ _mixed(ends.view(np.uint64) + mixer))
        sums = np.zeros(len(ids) + 1, dtype=np.uint64)
        np.cumsum(_mixed(own + place.view(np.uint64) * _MIX), out=sums[1:])
        names = _mixed((sums[1:] - np.repeat(sums[begins], counts)) ^ mixer)
    limit = np.uint64(min(int(rate * 2**64), 2**64) - 1)
    chosen = (names <= limit) | (place == 0)
    bounds = np.concatenate([[0], np.cumsum(chosen)])[np.append(begins, len(ids))].tolist()
    picked = (names[chosen].tolist(), sizes[chosen].tolist(), (place[chosen] == 0).tolist())
    for start, stop in pairwise(bounds):
        sizes_here = picked[1][start:stop]
        first_tokens = sizes_here[0] if stop > start else 0
        yield _Blocks(picked[0][start:stop], sizes_here, picked[2][start:stop], first_tokens)


def estimate(
    requests: Sequence[Request],
    capacities_blocks: Sequence[int],
    rate: float,
    seeds: Sequence[int] = range(8),
    *,
    num_warmup: int = 0,
) -> Estimate:
    """Block-LRU hit rates at some capacities with an error bar from several seeds (2 to 16)."""
    if not 2 <= len(seeds) <= len(_T95) + 1:
        raise UserError("--seeds", f"{len(seeds)} is not allowed; allowed: 2 to {len(_T95) + 1}")
    curves = [sampled_block_curve(requests, rate, seed, num_warmup=num_warmup) for seed in seeds]
    rates = np.stack([curve.token_hit_rate(capacities_blocks) for curve in curves])
    spread = rates.std(axis=0, ddof=1) / np.sqrt(len(seeds))
    sampled = sum(len(curve.steps.first) for curve in curves)
    return Estimate(rates.mean(axis=0), spread * _T95[len(seeds) - 2], sampled)


def _mixed(values: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: every input bit moves every output bit."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Stack:
    """Distances of single blocks: the blocks touched since, by a Fenwick tree over time.

    A sampled block stands for `weight` blocks, a first block for itself. Time is compacted when it
    has run out, so memory follows the blocks alive, not the trace.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._time_of: dict[int, int] = {}
        self._weight_at: dict[int, float] = {}
        self._size = 1 << 16
        self._tree = [0.0] * (self._size + 1)
        self._now = 0
        self._alive = 0.0

    def distances(self, path: list[int], is_first: list[bool]) -> list[float | None]:
        """For each block of a path its distance, itself as one, before the path is touched."""
        if self._now + len(path) > self._size:
            self._compact(len(path))
        found: list[float | None] = []
        for block in path:
            time = self._time_of.get(block)
            found.append(None if time is None else self._alive - self._older(time) + 1.0)
        for block, first in zip(reversed(path), reversed(is_first), strict=True):
            self._touch(block, 1.0 if first else self._weight)  # so the root is the most recent
        return found

    def _touch(self, block: int, weight: float) -> None:
        time = self._time_of.get(block)
        if time is not None:
            self._add(time, -self._weight_at.pop(time))
        self._now += 1
        self._time_of[block] = self._now
        self._weight_at[self._now] = weight
        self._add(self._now, weight)

    def _older(self, time: int) -> float:
        """Blocks whose last touch is at or before `time`."""
        count = 0.0
        while time > 0:
            count += self._tree[time]
            time &= time - 1
        return count

    def _add(self, time: int, amount: float) -> None:
        self._alive += amount
        while time <= self._size:
            self._tree[time] += amount
            time += time & -time

    def _compact(self, room: int) -> None:
        order = sorted(self._time_of.items(), key=lambda item: item[1])
        weights = [self._weight_at[time] for _, time in order]
        while self._size < 2 * (len(order) + room):
            self._size *= 2
        self._tree = [0.0] * (self._size + 1)
        self._now, self._alive = 0, 0.0
        self._time_of, self._weight_at = {}, {}
        for (block, _), weight in zip(order, weights, strict=True):
            self._touch(block, weight)
