"""Policies whose positions depend on lengths alone."""

from collections.abc import Iterable
from dataclasses import dataclass

from hybridsim.errors import UserError
from hybridsim.policies.base import PromptView


@dataclass(frozen=True, slots=True)
class NoCheckpoints:
    """Keep no state: a hybrid model then never reuses a prefix. The baseline."""

    def positions(self, view: PromptView) -> Iterable[int]:
        return ()


@dataclass(frozen=True, slots=True)
class PromptEnd:
    """One state at the end of the prompt, for prompts that continue or repeat this one.

    SGLang keeps this one (0.5.23, no_buffer); Marconi keeps the turn's end instead.
    """

    def positions(self, view: PromptView) -> Iterable[int]:
        return (view.request.num_prompt_tokens,)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """One state after the last generated token that was fed back, for the next turn of a chat.

    Marconi's leaf checkpoint (arXiv 2411.19379), less the last token, which no engine computes.
    Where the trace does not know the output's content the position falls back to the prompt's end.
    """

    def positions(self, view: PromptView) -> Iterable[int]:
        return (view.num_final_tokens,)


@dataclass(frozen=True, slots=True)
class Every:
    """A state at each multiple of `tokens`, in prefill and in decode (OpenVINO, vLLM retention)."""

    tokens: int

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise UserError("cache.checkpoint.tokens", f"{self.tokens} is not allowed; at least 1")

    def positions(self, view: PromptView) -> Iterable[int]:
        first = view.num_hit_tokens // self.tokens + 1
        return range(first * self.tokens, view.num_final_tokens + 1, self.tokens)


@dataclass(frozen=True, slots=True)
class AllBlocks:
    """A state at each grid position: vLLM 0.27.1's mode `all`. Best hits, most memory."""

    def positions(self, view: PromptView) -> Iterable[int]:
        first = view.num_hit_tokens // view.grid_tokens + 1
        return range(first * view.grid_tokens, view.num_final_tokens + 1, view.grid_tokens)
