"""Windows of KV in the place of states, for models with sliding-window layers.

To resume at p such a layer needs KV of the last window of tokens before p, each held since its own
last pass. It knows no problem, only runs.
"""

from dataclasses import dataclass

import numpy as np

from hybridsim.analysis.reward import FloatArray
from hybridsim.request import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """The window before the end of each run, in tokens, `[num_runs]` each.

    `num_tokens`: of the run itself; `top`: the run in which the window begins; `top_tokens`: of
    that run in the window. Whole runs lie between the two.
    """

    num_tokens: Int64Array
    top: Int64Array
    top_tokens: Int64Array

    @staticmethod
    def of(
        first: Int64Array, begin_tokens: Int64Array, end_tokens: Int64Array, window_tokens: int
    ) -> "Windows":
        """Runs of one request follow each other without gaps from its first token on.

        first, `[num_requests + 1]`: where a request's runs begin.
        """
        longest = int(end_tokens.max(initial=0)) + 1
        base = np.repeat(np.arange(len(first) - 1) * longest, np.diff(first))
        start = np.maximum(end_tokens - window_tokens, 0)
        top = np.searchsorted(base + end_tokens, base + start, side="right")
        return Windows(end_tokens - begin_tokens, top, end_tokens[top] - start)

    def costs(self, rent: FloatArray) -> FloatArray:
        """Rent of each window; rent, `[num_runs]`: of a token of each run."""
        before = np.cumsum(self.num_tokens * rent)
        whole = before - before[self.top]
        return np.asarray(whole + self.top_tokens * rent[self.top])

    def use(self, resumed: Int64Array) -> FloatArray:
        """Tokens of each run in the windows before the ends of these runs, one a request."""
        count = len(self.num_tokens)
        inside = np.bincount(self.top[resumed] + 1, minlength=count + 1)
        inside -= np.bincount(resumed + 1, minlength=count + 1)
        use = (np.cumsum(inside)[:count] * self.num_tokens).astype(np.float64)
        use[self.top[resumed]] += self.top_tokens[resumed]
        return use
