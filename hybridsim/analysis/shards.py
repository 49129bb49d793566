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

from hybridsim.analysis.block_stack import BlockStack
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


# Two-sided 95 % quantiles of Student's t for 1 to 15 degrees of freedom.
_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
        2.160, 2.145, 2.131)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A curve over blocks for each seed, from one reading, and how many blocks were read."""

    curves: Sequence[Curve]
    num_blocks: int

    def estimate(self, capacities_blocks: Sequence[int]) -> Estimate:
        """Hit rates at some capacities with an error bar; ValueError but from 2 to 16 seeds."""
        count = len(self.curves)
        if not 2 <= count <= len(_T95) + 1:
            raise ValueError(f"{count} seeds; allowed: 2 to {len(_T95) + 1}")
        rates = np.stack([curve.token_hit_rate(capacities_blocks) for curve in self.curves])
        spread = rates.std(axis=0, ddof=1) / np.sqrt(count)
        return Estimate(rates.mean(axis=0), spread * _T95[count - 2])


def read_samples(
    requests: Iterable[Request], rate: float, seeds: Sequence[int], *, num_warmup: int = 0
) -> Samples:
    """All seeds' samples from one reading of the trace, which is never held as a whole.

    First blocks of prompts are all kept, since a hot one would shift the whole curve by being in
    the sample or not. The others stand for as many tokens as they are (ratio estimate).
    UserError for a rate outside (0, 1]. Memory O(sampled blocks alive); O(log n) a sampled block.
    """
    if not 0 < rate <= 1:
        raise UserError("--sample", f"{rate:g} is not allowed; allowed: a rate > 0 and <= 1")
    samplers, stream = [_Sampler(rate, seed) for seed in seeds], iter(requests)
    num_seen = num_blocks = 0
    while chunk := list(islice(stream, _CHUNK)):
        num_blocks += sum(len(request.prompt.ids) for request in chunk)
        for sampler in samplers:
            sampler.add(chunk, num_left_out=max(num_warmup - num_seen, 0))
        num_seen += len(chunk)
    return Samples([sampler.curve() for sampler in samplers], num_blocks)


class _Sampler:
    """One seed's sample of a trace that comes in chunks."""

    def __init__(self, rate: float, seed: int) -> None:
        self._rate = rate
        self._stack = BlockStack(1.0 / rate)
        self._kept, self._others = _Tally(), _Tally()
        self._mixer = np.uint64(np.random.default_rng(seed).integers(1, 2**63))
        self._num_prompt_tokens = 0

    def add(self, chunk: Sequence[Request], num_left_out: int) -> None:
        """Touch all blocks; the first requests are warm-up and are not counted."""
        sampled = _sampled(chunk, self._rate, self._mixer)
        for index, (request, blocks) in enumerate(zip(chunk, sampled, strict=True)):
            distances = self._stack.distances(blocks.names, blocks.is_first)
            if index < num_left_out:
                continue
            self._num_prompt_tokens += request.num_prompt_tokens
            self._kept.num_tokens += blocks.first_tokens
            self._others.num_tokens += request.num_prompt_tokens - blocks.first_tokens
            rows = zip(distances, blocks.sizes, blocks.is_first, strict=True)
            for distance, size, is_first in rows:
                (self._kept if is_first else self._others).add(distance, size)

    def curve(self) -> Curve:
        """Of all that was added."""
        first, rest = self._kept.steps(), self._others.steps()
        at = np.concatenate([first[0], rest[0]])
        steps = Steps.points(at, np.concatenate([first[1], rest[1]]))
        return Curve(steps, self._num_prompt_tokens)


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


def _mixed(values: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser: every input bit moves every output bit."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
