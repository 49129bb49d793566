"""Policies whose positions depend on lengths alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.policies.make import at_least


@dataclass(frozen=True, slots=True)
class NoCheckpoints(CheckpointPolicy):
    """Keep no state: a hybrid model then never reuses a prefix. The baseline."""

    saves_states: ClassVar[bool] = False
    source: ClassVar[str] = "baseline"

    def positions(self, view: PromptView) -> Iterable[int]:
        return ()


@dataclass(frozen=True, slots=True)
class PromptEnd(CheckpointPolicy):
    """One state at the end of the prompt, for prompts that continue or repeat this one."""

    source: ClassVar[str] = "SGLang 0.5.23 (no_buffer)"
    deviation: ClassVar[str] = "Prefill is not cut into chunks, each with a state at its end."

    def positions(self, view: PromptView) -> Iterable[int]:
        return (view.request.num_prompt_tokens,)


@dataclass(frozen=True, slots=True)
class TurnEnd(CheckpointPolicy):
    """One state after the last generated token that was fed back, for the next turn of a chat.

    Where the trace does not know the output's content the position falls back to the prompt's end.
    """

    source: ClassVar[str] = "Marconi's leaf checkpoint (arXiv 2411.19379)"
    deviation: ClassVar[str] = "Less the last generated token, which no engine computes."

    def positions(self, view: PromptView) -> Iterable[int]:
        return (view.num_final_tokens,)


@dataclass(frozen=True, slots=True)
class Every(CheckpointPolicy):
    """A state at each multiple of `tokens`, in prefill and in decode."""

    source: ClassVar[str] = "OpenVINO, mlx-engine (512 tokens)"

    tokens: int

    def __post_init__(self) -> None:
        at_least("cache.checkpoint.tokens", self.tokens, 1)

    def positions(self, view: PromptView) -> Iterable[int]:
        first = view.num_hit_tokens // self.tokens + 1
        return range(first * self.tokens, view.num_final_tokens + 1, self.tokens)

    def stride_tokens(self, grid_tokens: int) -> int | None:
        if grid_tokens % self.tokens and self.tokens % grid_tokens:
            return None
        return max(grid_tokens, self.tokens)


@dataclass(frozen=True, slots=True)
class AllBlocks(CheckpointPolicy):
    """A state at each grid position. Best hits, most memory."""

    source: ClassVar[str] = "vLLM 0.27.1, mode `all`"
    deviation: ClassVar[str] = "The grid is the page and the trace's, not an enlarged block."

    def positions(self, view: PromptView) -> Iterable[int]:
        first = view.num_hit_tokens // view.grid_tokens + 1
        return range(first * view.grid_tokens, view.num_final_tokens + 1, view.grid_tokens)

    def stride_tokens(self, grid_tokens: int) -> int | None:
        return grid_tokens
