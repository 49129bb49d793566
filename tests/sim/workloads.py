"""Costs, caches and random workloads for the tests of timed mode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from hybridsim.cache.base import PrefixCache
from hybridsim.cache.null_cache import NullCache
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.cost.base import PrefillChunk
from hybridsim.policies.checkpoint.fixed import Every, NoCheckpoints, PromptEnd, TurnEnd
from hybridsim.policies.eviction.lru import LRU
from hybridsim.request import Request, Spans
from hybridsim.sim.options import SchedulerOptions


@dataclass(frozen=True)
class AffineCost:
    """Seconds = launch + tokens * per_token + context tokens * per_context + bytes * per_byte.

    The defaults are powers of two, so that sums of steps are exact in floating point and a leap
    ends at the very instant at which single steps end: ties with arrivals are then the same too.
    """

    launch_s: float = 2.0**-4
    token_s: float = 2.0**-10
    context_s: float = 2.0**-16
    byte_s: float = 2.0**-14

    def step_s(
        self,
        chunks: Sequence[PrefillChunk],
        num_decodes: int,
        decode_context_tokens: int,
        copied_bytes: int = 0,
    ) -> float:
        tokens = num_decodes + sum(chunk.num_new_tokens for chunk in chunks)
        context = decode_context_tokens + sum(chunk.num_prefix_tokens for chunk in chunks)
        work_s = tokens * self.token_s + context * self.context_s + copied_bytes * self.byte_s
        return self.launch_s + work_s

    def decode_steps_s(self, num_steps: int, num_decodes: int, decode_context_tokens: int) -> float:
        grown = num_decodes * (num_steps * (num_steps - 1) // 2)  # 0 + n + 2n + ...
        context = num_steps * decode_context_tokens + grown
        tokens = num_steps * num_decodes
        return num_steps * self.launch_s + tokens * self.token_s + context * self.context_s


FREE = AffineCost(0.0, 0.0, 0.0, 0.0)


def request(
    index: int,
    num_prompt_tokens: int,
    num_output_tokens: int,
    arrival_s: float | None = 0.0,
    **fields: object,
) -> Request:
    """A request that shares nothing with any other."""
    return Request(
        request_id=f"r{index}",
        prompt=Spans.of([(10**6 + index, num_prompt_tokens)]),
        output=Spans.unknown(num_output_tokens),
        arrival_s=arrival_s,
        **fields,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Workload:
    """Requests, a maker of fresh equal caches, and limits."""

    requests: list[Request]
    make_cache: Callable[[], PrefixCache]
    options: SchedulerOptions

    def __repr__(self) -> str:
        rows = [
            (r.num_prompt_tokens, r.prompt.ids.tolist(), r.prompt.ends.tolist(),
             r.num_output_tokens, r.arrival_s, r.previous, r.delay_s, r.priority)
            for r in self.requests
        ]  # fmt: skip
        cache = self.make_cache()
        return f"Workload({rows}, {vars(cache)}, {self.options})"


CHECKPOINTS = [NoCheckpoints(), PromptEnd(), TurnEnd(), Every(4), Every(16)]


@st.composite
def caches(draw: st.DrawFn) -> Callable[[], PrefixCache]:
    """Tiny radix caches of every kind, and the one that keeps nothing."""
    page_tokens = draw(st.sampled_from([1, 4, 16]))
    num_pages = draw(st.integers(30, 200)) // page_tokens + 1
    num_slots = draw(st.integers(1, 6))
    slot_bytes = draw(st.sampled_from([0, 64]))
    checkpoint = draw(st.sampled_from(CHECKPOINTS))
    kind = draw(st.sampled_from(["null", "split", "shared"]))

    def make() -> PrefixCache:
        if kind == "null":
            return NullCache(page_tokens, num_pages, num_slots)
        memory = Memory(page_tokens, slot_bytes, num_pages, num_slots)
        if kind == "shared":
            capacity_bytes = page_tokens * num_pages + slot_bytes * num_slots
            memory = SharedMemory(page_tokens, slot_bytes, capacity_bytes)
        return RadixCache(memory, page_tokens, checkpoint, LRU())

    return make


TIMES = st.integers(0, 64).map(lambda ticks: ticks / 8)


@st.composite
def workloads(draw: st.DrawFn, max_requests: int = 14) -> Workload:
    """Conversations and lone prompts over few contents, in a memory too small for all of them."""
    requests: list[Request] = []
    arrival_s = 0.0
    for index in range(draw(st.integers(1, max_requests))):
        arrival_s += draw(TIMES) if draw(st.booleans()) else 0.0
        previous = draw(st.none() | st.integers(0, index - 1)) if index else None
        shared = st.tuples(st.integers(1, 3), st.integers(1, 20))
        prompt = Spans.of(draw(st.lists(shared, min_size=1, max_size=3)))
        if previous is not None:
            turn = requests[previous]
            prompt = turn.prompt.joined(turn.output).joined(prompt)
            if prompt.num_tokens > 100:
                prompt, previous = Spans.of([(1, 9), (index, 5)]), None
        num_output_tokens = draw(st.integers(0, 40))
        output = Spans.unknown(num_output_tokens)
        if num_output_tokens and draw(st.booleans()):
            output = Spans.of([(100 + index, num_output_tokens)])
        requests.append(
            Request(
                f"r{index}",
                prompt,
                output,
                arrival_s=arrival_s,
                previous=previous,
                delay_s=draw(TIMES),
                priority=draw(st.integers(0, 2)),
            )
        )
    max_num_seqs = draw(st.integers(1, 8))
    options = SchedulerOptions(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_seqs + draw(st.integers(0, 64)),
        chunked_prefill=draw(st.booleans()),
        order=draw(st.sampled_from(["fcfs", "priority"])),
    )
    return Workload(requests, draw(caches()), options)


ARRIVALS = st.sampled_from(["recorded", "closed_loop", "serial"])
