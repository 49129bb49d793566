"""V2: alpha found by replaying a bootstrap window."""

from collections.abc import Callable

from hybridsim.engines.marconi.cache import MarconiCache
from hybridsim.engines.marconi.eviction import FlopAware
from hybridsim.engines.marconi.served import Served
from hybridsim.request import Spans

GRID = tuple(step / 10 for step in range(21))  # 0, 0.1, .., 2
NUM_JUDGED = 500  # requests at the window's end over which saved FLOPs are summed

NewCache = Callable[[float], MarconiCache]


class TunedCache:
    """Starts with alpha 0. Once `multiplier` times as many requests came as at the first eviction,
    all of them are replayed from empty for each alpha of the grid; that with the most FLOPs saved
    over the last 500 stays for good (of equal ones the smallest). The tree itself is kept.
    """

    def __init__(self, new_cache: NewCache, multiplier: int) -> None:
        self.cache = new_cache(0.0)
        self.alpha: float | None = None
        self.num_window_requests: int | None = None
        self._new_cache = new_cache
        self._multiplier = multiplier
        self._window: list[tuple[Spans, Spans]] = []

    @property
    def num_states(self) -> int:
        return self.cache.num_states

    @property
    def num_tokens(self) -> int:
        return self.cache.num_tokens

    def serve(self, prompt: Spans, output: Spans) -> Served:
        served = self.cache.serve(prompt, output)
        if self.alpha is None:
            self._window.append((prompt, output))
            if self.num_window_requests is None and served.did_evict:
                self.num_window_requests = self._multiplier * len(self._window)
            if len(self._window) == self.num_window_requests:
                self._tune()
        return served

    def _tune(self) -> None:
        self.alpha = max(GRID, key=self.saved_flops)
        eviction = self.cache.eviction
        assert isinstance(eviction, FlopAware)
        eviction.alpha = self.alpha
        self._window.clear()

    def saved_flops(self, alpha: float) -> int:
        """FLOPs of the hit tokens, over the last 500 requests of the window's replay."""
        cache = self._new_cache(alpha)
        hits = [cache.serve(prompt, output).num_hit_tokens for prompt, output in self._window]
        return sum(cache.formulas.prefill_flops(n) for n in hits[-NUM_JUDGED:])

    def check(self) -> None:
        self.cache.check()
