"""Sparse prefix caching: the placement that is best for the overlaps seen so far."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from hybridsim.errors import UserError
from hybridsim.policies.checkpoint.base import CheckpointPolicy, PromptView
from hybridsim.policies.checkpoint.placement import Plan, places, solve
from hybridsim.policies.make import at_least

NEGLIGIBLE = 1e-9  # share of the histogram's weight below which a bin is left out


@dataclass(slots=True)
class DPOptimal(CheckpointPolicy):
    """The `states` positions that minimise the expected tokens to compute again.

    The expectation is over a histogram of how many tokens each prompt shared with the tree, in
    bins of `bin_tokens`, in which older prompts fade by `decay` each. After the first `warmup`
    prompts, which get `balanced` places, it is solved, and then anew every `replan` prompts; each
    prompt takes the solution for overlaps up to its own length.
    """

    source: ClassVar[str] = "Sparse prefix caching (arXiv 2605.05219)"
    deviation: ClassVar[str] = (
        "O(rows x states) by a lower envelope of lines instead of O(rows^2 x states); bins that "
        "faded below 1e-9 of the weight are left out. Overlaps of less than a bin ask for nothing."
    )

    states: int
    decay: float = 0.99
    replan: int = 10
    bin_tokens: int = 64
    warmup: int = 0

    _weights: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _step: float = field(default=1.0, init=False, repr=False)
    _num_seen: int = field(default=0, init=False)
    _depths: np.ndarray = field(default_factory=lambda: np.empty(0), init=False, repr=False)
    _plan: Plan | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        at_least("cache.checkpoint.states", self.states, 1)
        at_least("cache.checkpoint.replan", self.replan, 1)
        at_least("cache.checkpoint.bin_tokens", self.bin_tokens, 1)
        at_least("cache.checkpoint.warmup", self.warmup, 0)
        if not 0 < self.decay <= 1:
            raise UserError("cache.checkpoint.decay", f"{self.decay} is not allowed; > 0 and <= 1")

    def positions(self, view: PromptView) -> Iterable[int]:
        self.observe(view.num_match_tokens)
        return self.places(view.request.num_prompt_tokens)

    def observe(self, num_overlap_tokens: int) -> None:
        """Count one more overlap; now and then, solve again."""
        if self._num_seen == self.warmup:
            self._solve()
        # Fading all others by `decay` is the same as counting this one 1 / decay more.
        self._step /= self.decay
        bin_index = num_overlap_tokens // self.bin_tokens
        if bin_index:
            self._weights[bin_index] = self._weights.get(bin_index, 0.0) + self._step
        self._num_seen += 1
        if self._num_seen > self.warmup and self._num_seen % self.replan == 0:
            self._solve()

    def places(self, num_tokens: int) -> list[int]:
        """Positions for a prompt of `num_tokens`, rising; at most `states`."""
        if self._plan is None:
            step = num_tokens // (self.states + 1)
            return list(range(step, step * self.states + 1, step)) if step else []
        last_row = int(np.searchsorted(self._depths, num_tokens, side="right")) - 1
        if last_row < 0:
            return []
        return [int(p) for p in places(self._plan, self._depths, self.states, last_row)]

    def _solve(self) -> None:
        total = sum(self._weights.values())
        kept = {k: w / total for k, w in self._weights.items() if w > NEGLIGIBLE * total}
        if self._step > 1e100:
            self._step, self._weights = self._step / total, dict(kept)
        if kept:
            bins = sorted(kept)
            self._depths = np.array(bins, dtype=np.float64) * self.bin_tokens
            self._plan = solve(self._depths, np.array([kept[k] for k in bins]), self.states)
