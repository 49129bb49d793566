"""Random token traces that provoke an engine's edge cases: shared heads, forks, grid lengths.

A trace is a list of `{"id", "tokens", "output"}`, as the `tokens` format and the oracles read it.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

Row = dict[str, Any]


@dataclass(slots=True)
class TraceShape:
    """What a random trace looks like. Lengths are tokens.

    grids: lengths whose multiples, and those plus or minus one, deserve to be hit often.
    num_priorities: above 1, requests carry a random `priority` below it.
    """

    grids: tuple[int, ...]
    num_requests: int = 30
    max_prompt_tokens: int = 300
    max_output_tokens: int = 60
    num_priorities: int = 1


@dataclass(slots=True)
class _Writer:
    shape: TraceShape
    rng: np.random.Generator
    fresh: Any = field(default_factory=lambda: count(1000))
    history: list[tuple[list[int], list[int]]] = field(default_factory=list)

    def length(self, most: int) -> int:
        """A length from 1 to `most`, often at or next to a multiple of a grid."""
        rng = self.rng
        if rng.random() < 0.5:
            grid = int(rng.choice(self.shape.grids))
            near = grid * int(rng.integers(1, max(2, most // grid + 1))) + int(rng.integers(-1, 2))
            return min(max(near, 1), most)
        return int(rng.integers(1, most + 1))

    def content(self, num_tokens: int) -> list[int]:
        """New tokens; now and then from an alphabet so small that contents meet by chance."""
        if self.rng.random() < 0.1:
            return [int(token) for token in self.rng.integers(1, 3, num_tokens)]
        return [next(self.fresh) for _ in range(num_tokens)]

    def prompt(self) -> list[int]:
        most = self.shape.max_prompt_tokens
        if not self.history or self.rng.random() < 0.2:
            return self.content(self.length(most))
        # Recent requests come back more often than old ones, as in real traffic.
        back = min(int(self.rng.geometric(0.25)), len(self.history))
        prompt, output = self.history[-back]
        kind = self.rng.choice(("turn", "repeat", "fork", "longer", "cut"), p=_KIND_SHARES)
        if kind == "turn":
            body = prompt + output + self.content(self.length(max(1, most // 4)))
        elif kind == "repeat":
            body = list(prompt)
        elif kind == "cut":
            body = (prompt + output)[: self.length(len(prompt + output))]
        else:
            whole = prompt + output
            keep = len(prompt) if kind == "longer" else self.length(len(whole))
            body = whole[:keep] + self.content(self.length(max(1, most // 3)))
        return body if len(body) <= most else body[: self.length(most)]

    def output(self) -> list[int]:
        kind = self.rng.random()
        if kind < 0.25:
            return self.content(1)
        most = self.shape.max_output_tokens
        return self.content(self.length(most if kind > 0.6 else max(1, most // 8)))


_KIND_SHARES = (0.35, 0.15, 0.25, 0.15, 0.10)


def random_trace(shape: TraceShape, rng: np.random.Generator) -> list[Row]:
    """One trace: conversations, repeats, forks, cuts and new prompts, mixed."""
    writer = _Writer(shape, rng)
    rows: list[Row] = []
    for number in range(shape.num_requests):
        prompt, output = writer.prompt(), writer.output()
        writer.history.append((prompt, output))
        row: Row = {"id": f"r{number}", "tokens": prompt, "output": output}
        if shape.num_priorities > 1:
            row["priority"] = int(rng.integers(0, shape.num_priorities))
        rows.append(row)
    return rows
