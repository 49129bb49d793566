"""Jobs: a configuration and a trace, drawn at random or taken from a real trace."""

from typing import Any

import numpy as np

from conformance.generate import TraceShape, random_trace
from conformance.vllm.configs import random_config
from hybridsim.request import Request, Spans

Row = dict[str, Any]


def random_job(rng: np.random.Generator, version: str, num_requests: int) -> tuple[Row, list[Row]]:
    """A configuration and a trace that suits it."""
    config = random_config(rng, version)
    block = config["block_size"]
    unit = config.get("prefix_match_unit") or block
    shape = TraceShape(
        grids=(block, unit, config["max_num_batched_tokens"]),
        num_requests=num_requests,
        max_prompt_tokens=int(rng.integers(block, config["max_model_len"] - 80)),
        max_output_tokens=int(rng.choice((8, 40, 80))),
        num_priorities=3 if config.get("sched_policy") == "priority" else 1,
    )
    trace = random_trace(shape, rng)
    if config.get("mode") == "concurrent":
        steps = np.cumsum(rng.integers(0, int(rng.choice((2, 6, 30))), len(trace)))
        for row, step in zip(trace, steps, strict=True):
            row["arrival_step"] = int(step)
    return config, trace


class Tokens:
    """Turns spans into token ids; equal spans at equal places become equal tokens.

    scale: lengths are divided by it and rounded up, so that long traces stay affordable.
    """

    def __init__(self, scale: int = 1) -> None:
        self._scale = scale
        self._first_token: dict[tuple[int, int], int] = {}
        self._next = 1

    def row(self, request: Request) -> Row:
        """One line of a trace for the oracle's driver."""
        prompt = self._tokens(request.prompt)
        return {
            "id": request.request_id,
            "tokens": prompt,
            "output": self._tokens(request.output) or self._fresh(1),
        }

    def _tokens(self, spans: Spans) -> list[int]:
        tokens: list[int] = []
        start = 0
        for content, end in zip(spans.ids.tolist(), spans.ends.tolist(), strict=True):
            length = -(-end // self._scale) + (-start // self._scale)
            tokens += self._span(content, start, max(length, 0))
            start = end
        unknown = -(-spans.num_tokens // self._scale) - len(tokens)
        return tokens + self._fresh(max(unknown, 0))

    def _span(self, content: int, start: int, length: int) -> list[int]:
        first = self._first_token.setdefault((content, start), self._next)
        if first == self._next:
            self._next += 2**20
        return list(range(first, first + length))

    def _fresh(self, length: int) -> list[int]:
        self._next += length
        return list(range(self._next - length, self._next))
