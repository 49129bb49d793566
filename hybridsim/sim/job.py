"""A request on its way through the scheduler: what it holds, how far it is, what it writes down."""

from dataclasses import dataclass, field

from hybridsim.cache.base import Lease
from hybridsim.records import RequestRecord
from hybridsim.request import Request


@dataclass(slots=True, eq=False)
class Job:
    """One submitted request.

    `order`: place in the order of submission; it breaks every tie.
    `ideal_tokens`: what an infinite cache would have hit, where that is known.
    `num_generated`: output tokens produced, kept over preemptions.
    `num_computed`: tokens with KV and state, the reused ones included; 0 while waiting. While the
    job decodes, `DecodeGroup` owns both counters and writes them back when the job leaves.
    `stops`: positions (tokens, falling, so that the next one is last) where a prefill chunk must
    end because the cache is told of it there: planned checkpoints and the prompt's end.
    """

    order: int
    request: Request
    record: RequestRecord
    ideal_tokens: int | None = None
    num_generated: int = 0
    num_computed: int = 0
    lease: Lease | None = None
    stops: list[int] = field(default_factory=list)

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens to compute before the next output token: the prompt and what was generated."""
        return self.request.num_prompt_tokens + self.num_generated

    def num_reusable_tokens(self, num_hit_tokens: int) -> int:
        """Tokens that a hit saves: the first output token needs the activations of the last
        prompt token, which no cache keeps."""
        return min(num_hit_tokens, self.request.num_prompt_tokens - 1)

    def held(self) -> Lease:
        """The lease of a running job."""
        if self.lease is None:
            raise AssertionError(f"request {self.request.request_id} runs without a lease")
        return self.lease

    def start(self, lease: Lease) -> None:
        """Begin to run with `lease`: what it reuses counts as computed."""
        self.lease = lease
        self.num_computed = self.num_reusable_tokens(lease.num_hit_tokens)
        stops = {*lease.checkpoints, self.request.num_prompt_tokens}
        self.stops = sorted((stop for stop in stops if stop > self.num_computed), reverse=True)

    def stop(self) -> Lease:
        """Cease to run; hand the lease back to be released."""
        lease = self.held()
        self.lease, self.num_computed, self.stops = None, 0, []
        return lease
