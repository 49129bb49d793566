"""Random numbers as workloads need them: token counts, Zipf popularity, content ids with names."""

import numpy as np
from pydantic import Field

from hybridsim.request import Spans
from hybridsim.traces.options import Strict
from hybridsim.traces.reading import Notes
from hybridsim.traces.row import MAX_TOKENS

Segments = list[tuple[str, int]]


class Lengths(Strict):
    """Token counts: lognormal with this mean; `sigma` is the logarithm's (0: constant)."""

    mean: float = Field(gt=0, le=MAX_TOKENS, allow_inf_nan=False, description="mean tokens")
    sigma: float = Field(default=0.0, ge=0, le=5, description="standard deviation of the logarithm")
    max: int = Field(default=2**20, ge=1, le=MAX_TOKENS, description="longest")

    def draw(self, rng: np.random.Generator) -> int:
        """One count, at least 1 and at most `max`.

        A lognormal's mean is exp(mu + sigma^2 / 2), so mu = ln(mean) - sigma^2 / 2.
        """
        mu = np.log(self.mean) - self.sigma**2 / 2
        return int(min(self.max, max(1, round(float(rng.lognormal(mu, self.sigma))))))


class Popularity:
    """Draws ranks 0..n-1 with probability proportional to 1 / (rank + 1)^exponent (Zipf)."""

    def __init__(self, count: int, exponent: float) -> None:
        weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
        self._cumulative = np.cumsum(weights / weights.sum())

    def draw(self, rng: np.random.Generator) -> int:
        """One rank."""
        rank = int(np.searchsorted(self._cumulative, rng.random(), side="right"))
        return min(rank, len(self._cumulative) - 1)


class Contents:
    """Gives each segment name a content id and leaves the names with the trace's notes."""

    def __init__(self, notes: Notes) -> None:
        self._id_of: dict[str, int] = {}
        self._notes = notes

    def spans(self, segments: Segments) -> Spans:
        """The segments as spans of known content."""
        return Spans.of([(self.id_of(name), length) for name, length in segments])

    def id_of(self, name: str) -> int:
        """The content id of a name; numbered by first appearance."""
        if name not in self._id_of:
            content_id = len(self._id_of)
            self._id_of[name] = content_id
            self._notes.names[content_id] = name
        return self._id_of[name]
