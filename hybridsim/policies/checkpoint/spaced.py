"""Placements that need no knowledge but the prompt's length N."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.policies.make import at_least

_SOURCE = "Sparse prefix caching (arXiv 2605.05219)"


@dataclass(frozen=True, slots=True)
class Balanced(CheckpointPolicy):
    """`states` states, one after every N // (states + 1) tokens of the prompt."""

    source: ClassVar[str] = _SOURCE

    states: int

    def __post_init__(self) -> None:
        at_least("cache.checkpoint.states", self.states, 1)

    def positions(self, view: PromptView) -> Iterable[int]:
        step = view.request.num_prompt_tokens // (self.states + 1)
        return range(step, step * self.states + 1, step) if step else ()


@dataclass(frozen=True, slots=True)
class Sqrt(CheckpointPolicy):
    """A state after every isqrt(N) tokens of the prompt: about sqrt(N) states."""

    source: ClassVar[str] = _SOURCE

    def positions(self, view: PromptView) -> Iterable[int]:
        num_tokens = view.request.num_prompt_tokens
        step = isqrt(num_tokens)
        return range(step, num_tokens + 1, step) if step else ()


@dataclass(frozen=True, slots=True)
class Log(CheckpointPolicy):
    """A state at each power of two from `minimum` tokens up to the prompt's end."""

    source: ClassVar[str] = _SOURCE

    minimum: int = 768

    def __post_init__(self) -> None:
        at_least("cache.checkpoint.minimum", self.minimum, 1)

    def positions(self, view: PromptView) -> Iterable[int]:
        position = 1 << (self.minimum - 1).bit_length()
        while position <= view.request.num_prompt_tokens:
            yield position
            position *= 2
