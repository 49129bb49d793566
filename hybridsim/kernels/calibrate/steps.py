"""Whole steps of random mixed batches, timed: to fit what parts leave out, and to judge the sum."""

import numpy as np

from hybridsim.kernels.bench.timing import Timing
from hybridsim.kernels.calibrate.clock import time_calls, time_sustained
from hybridsim.kernels.model.batch import StepShape
from hybridsim.kernels.model.model import HybridModel

MAX_STEP_TOKENS = 8192


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


def draw_step(rng: np.random.Generator) -> StepShape:
    """A mixed batch as a scheduler with a budget of 8192 tokens could make it.

    0 to 4 prefill chunks of 16 to 4096 new tokens, half of them after a prefix of 16 to 16384
    tokens; 0 to 256 decoding requests whose contexts spread around a length of their own.
    """
    chunks: list[tuple[int, int]] = []
    for _ in range(int(rng.integers(0, 5))):
        new = _log_uniform(rng, 16, 4096)
        prefix = _log_uniform(rng, 16, 16384) if rng.random() < 0.5 else 0
        if sum(n for n, _ in chunks) + new <= MAX_STEP_TOKENS - 256:
            chunks.append((new, prefix))
    num_decodes = _log_uniform(rng, 1, 257) if rng.random() < 0.85 or not chunks else 0
    center = _log_uniform(rng, 256, 8192)
    spread = rng.lognormal(0, 0.7, num_decodes)
    contexts = np.clip(center * spread, 16, 16384).astype(int)
    return StepShape(tuple(chunks), tuple(int(c) for c in contexts))


def draw_steps(count: int, seed: int) -> list[StepShape]:
    """The first `count` steps of a seed: fewer of one seed are the start of more."""
    rng = np.random.default_rng(seed)
    return [draw_step(rng) for _ in range(count)]


def time_step(model: HybridModel, shape: StepShape, seed: int) -> Timing:
    """Seconds of one whole step in a CUDA graph."""
    batch = model.batch(shape, seed)
    return time_calls([lambda: model.step(batch)])


# Prefill of a whole budget, prefill beside decodes, decodes alone.
SUSTAINED = (
    StepShape(((8000, 0),), ()),
    StepShape(((2000, 2000), (1000, 0)), (2000,) * 64),
    StepShape((), (2000,) * 256),
)


def sustained_record(model: HybridModel, shape: StepShape) -> dict[str, object]:
    """A step's seconds in a burst and after half a second of nothing else, when the card may have
    come to its power limit."""
    batch = model.batch(shape, seed=0)

    def step() -> None:
        model.step(batch)

    return {**step_record(shape, time_calls([step])), "sustained_s": time_sustained(step)}


def shape_record(shape: StepShape) -> dict[str, object]:
    """A step, without its time, as a JSON object."""
    return {
        "chunks": [list(chunk) for chunk in shape.chunks],
        "num_decodes": len(shape.contexts),
        "decode_context_tokens": sum(shape.contexts),
        "longest_context": max(shape.contexts, default=0),
    }


def step_record(shape: StepShape, timing: Timing) -> dict[str, object]:
    """A step and its time as a JSON object."""
    times = {"median_s": timing.median_s, "low_s": timing.low_s, "high_s": timing.high_s}
    return {**shape_record(shape), **times}
