"""The cache and its brute-force twin take the same decisions, and no law is ever broken."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twin import Twin

from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.policies.checkpoint.base import PromptView
from hybridsim.request import Request, Spans

PAGE_BYTES, SLOT_BYTES = 3, 10
CHECKPOINTS = [
    "none", "prompt_end", "turn_end", {"name": "every", "tokens": 3}, "all_blocks", "branch",
    "prompt_end+branch",
]  # fmt: skip

pairs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=4)


class CacheMachine(RuleBasedStateMachine):
    """Random lookups, acquires, commits, grows, releases and preemptions, evictions among them."""

    @initialize(
        page=st.sampled_from([1, 2, 4]),
        num_pages=st.integers(4, 24),
        num_slots=st.integers(1, 5),
        shared=st.booleans(),
        refresh=st.sampled_from(["path", "consumed"]),
        checkpoint=st.sampled_from(CHECKPOINTS),
        grid=st.sampled_from([1, 2, 3]),
    )
    def build(self, page, num_pages, num_slots, shared, refresh, checkpoint, grid):
        capacity = num_pages * PAGE_BYTES + num_slots * SLOT_BYTES if shared else None
        memory = (
            SharedMemory(PAGE_BYTES, SLOT_BYTES, capacity)
            if shared
            else Memory(PAGE_BYTES, SLOT_BYTES, num_pages, num_slots)
        )
        self.policy = make_checkpoint(checkpoint)
        eviction = make_eviction({"name": "lru", "refresh": refresh})
        self.cache = RadixCache(memory, page, self.policy, eviction)
        self.twin = Twin(page, num_pages, num_slots, refresh, capacity, PAGE_BYTES, SLOT_BYTES)
        self.grid = grid
        self.running = []

    @rule(prompt=pairs, output=pairs, unknown=st.integers(0, 3), known=st.booleans())
    def start(self, prompt, output, unknown, known):
        out = Spans.of(output) if known else Spans.unknown(unknown)
        request = Request("r", Spans.of(prompt), out, grid_tokens=self.grid)
        match = self.cache.lookup(request)
        expected = self.twin.lookup(request.prompt)
        assert (match.num_match_tokens, match.num_hit_tokens, match.num_once_tokens) == expected
        assert match.num_hit_tokens <= match.num_match_tokens <= request.num_prompt_tokens
        last = request.num_prompt_tokens + max(out.num_tokens - 1, 0)
        grid = self.cache.page_tokens * self.grid
        if self.grid % 2 == 0 and self.cache.page_tokens % 2 == 0:
            grid = max(self.cache.page_tokens, self.grid)
        view = PromptView(request, expected[1], expected[0], last, grid)
        ours = self.cache.acquire(request, match)
        theirs = self.twin.acquire(request, list(self.policy.positions(view)))
        assert (ours is None) == (theirs is None)
        if ours is not None:
            assert set(ours.checkpoints) == theirs.plan
            todo = sorted({*ours.checkpoints, request.num_prompt_tokens, theirs.last})
            self.running.append((ours, theirs, todo))
        elif not self.running:
            assert not self.cache.fits(Request("r", request.prompt, Spans.unknown(0)))

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 10))
    def advance(self, index):
        ours, theirs, todo = self.running[index % len(self.running)]
        if not todo:
            return
        grew = self.cache.grow(ours, todo[0])
        assert grew == self.twin.grow(theirs, todo[0])
        if grew:
            position = todo.pop(0)
            self.cache.commit(ours, position)
            self.twin.commit(theirs, position)

    @precondition(lambda self: self.running)
    @rule(index=st.integers(0, 10), finish=st.booleans())
    def stop(self, index, finish):
        ours, theirs, todo = self.running.pop(index % len(self.running))
        finished = finish and not todo
        self.cache.release(ours, finished=finished)
        self.twin.release(theirs, finished)
        assert (
            ours.num_evicted_tokens,
            ours.num_evicted_states,
            ours.num_skipped_checkpoints,
            ours.num_checkpoints,
        ) == (theirs.evicted_tokens, theirs.evicted_states, theirs.skipped, theirs.saved)

    @invariant()
    def laws_hold(self):
        if not hasattr(self, "cache"):
            return
        self.cache.check()
        pages, slots = self.twin.used()
        assert self.cache.usage().kv_bytes == pages * PAGE_BYTES
        assert self.cache.usage().state_bytes == slots * SLOT_BYTES
        states = {node.end for node in self.cache.tree.nodes() if node.has_state}
        assert states == {len(prefix) for prefix in self.twin.states}


def _run(num_examples: int, num_steps: int) -> None:
    run_state_machine_as_test(
        CacheMachine,
        settings=settings(
            max_examples=num_examples, stateful_step_count=num_steps, deadline=None, print_blob=True
        ),
    )


def test_cache_and_twin_agree_over_random_actions():
    _run(150, 40)


@pytest.mark.slow
def test_cache_and_twin_agree_over_a_hundred_thousand_actions():
    _run(1000, 100)
