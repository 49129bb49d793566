"""Where the one-pass curve and the research cache must agree, and how far apart they are else."""

from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, assume, given, settings

from hybridsim.analysis.curve import CacheRules, lru_curve, lru_surface
from hybridsim.analysis.lockstep import Capacity, lru_grid
from hybridsim.cache.pools import Memory, SharedMemory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.errors import UserError
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.policies.checkpoint.base import CheckpointPolicy
from hybridsim.request import Spans
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace
from tests.analysis.workloads import (
    asked_positions,
    cached_tokens,
    list_lru,
    replay_lists,
    request_of,
    traces,
)


@dataclass(frozen=True)
class NamedSoFar(CheckpointPolicy):
    """Saves wherever on its path this or an earlier request ended: the curve's own assumption."""

    positions_of: dict[str, list[int]]

    def positions(self, view):
        return self.positions_of[view.request.request_id]


def named_so_far(requests):
    ends, positions_of = set(), {}
    for request in requests:
        path = tuple(cached_tokens(request, False))
        ends.add(path)
        positions_of[request.request_id] = [p for p in range(1, len(path) + 1) if path[:p] in ends]
    return NamedSoFar(positions_of)


@settings(max_examples=120, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    traces(unique_ends=True, max_requests=9),
    st.sampled_from([0, 2, 6]),
    st.sampled_from(["prompt_end", "turn_end", "all_blocks", "log"]),
    st.data(),
)
def test_the_default_curve_is_the_default_caches_own_hit_rate_where_nothing_is_scratch(
    requests, sigma, named, data
):
    """No scratch: prompts only, one token a page, no prompt twice (so the running state is always
    the one that is kept), every path fits whole; and a larger cache always holds more."""
    prompts = [request_without_output(request) for request in requests]
    rules, policy = CacheRules(1, sigma, outputs=False), make_checkpoint(named)
    longest = max(
        request.num_prompt_tokens
        + sigma * len(asked_positions(policy, request, 1, outputs=False) | {0})
        for request in prompts
    )
    capacity = longest + data.draw(st.integers(0, 40))
    caches = [list_lru(rules, size) for size in range(capacity + 1)]
    assume(replay_lists(prompts, rules, policy, caches, "path")[1])
    cache = RadixCache(
        SharedMemory(1, sigma, capacity), 1, make_checkpoint(named), make_eviction("lru"),
        cache_outputs=False,
    )  # fmt: skip
    hits = sum(record.num_hit_tokens for record in replay(prompts, cache))
    assert lru_curve(prompts, rules, policy).hit_tokens([capacity])[0] == hits


@settings(max_examples=120, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    traces(max_requests=9, min_output=2),
    st.sampled_from(["prompt_end", "turn_end"]),
    st.integers(1, 4),
    st.data(),
)
def test_the_default_surface_is_a_split_cache_with_a_slot_for_the_running_state(
    requests, named, page_tokens, data
):
    """KV without end, so that states alone are short, but more slots than states on any path, and
    no request generates what another saved a state behind."""
    requests = [one for one in requests if one.num_prompt_tokens >= page_tokens]
    assume(requests)
    policy = make_checkpoint(named)
    rules = CacheRules(1, 1, page_tokens, running_states=1)
    asked = [asked_positions(policy, one, page_tokens, outputs=True) for one in requests]
    ends = {
        tuple(cached_tokens(one, True)[:position])
        for one, positions in zip(requests, asked, strict=True)
        for position in positions
    }
    paths = [tuple(cached_tokens(one, True)) for one in requests]
    generated = [
        path[:position] in ends and position not in positions
        for one, path, positions in zip(requests, paths, asked, strict=True)
        for position in range(one.num_prompt_tokens + 1, len(path) + 1)
    ]
    assume(not any(generated))
    most = max(sum(path[: len(end)] == end for end in ends) for path in paths)
    slots = most + data.draw(st.integers(1, 3))
    caches = [list_lru(rules, 10**6, count) for count in range(slots + 1)]
    assume(replay_lists(requests, rules, policy, caches, "path")[1])
    cache = RadixCache(
        Memory(page_tokens, 1, None, slots), page_tokens, make_checkpoint(named),
        make_eviction("lru"),
    )  # fmt: skip
    hits = sum(record.num_hit_tokens for record in replay(requests, cache))
    total = sum(request.num_prompt_tokens for request in requests)
    finals = [request.num_final_tokens for request in requests]
    left = [final in positions for final, positions in zip(finals, asked, strict=True)]
    assume(all(left) or not any(left))  # a mixture lies between the two
    surface = lru_surface(requests, rules, policy)
    assert surface.token_hit_rate([10**6], [slots])[0, 0] == pytest.approx(hits / total)


def test_a_curve_takes_what_is_yet_to_be_generated_for_found():
    """Four slots, 8 prompt tokens. The fourth request (prompt 1) generates 2, behind which the
    first saved a state. When it saves its own, with its running state, that of the first is the
    least recent of five and goes; the fifth (1 2 1) hits the one behind 1: 1 token. A curve looks
    at the whole path at once, finds the first's state there, makes it young and hits 2."""
    tokens = [([1, 2], [9, 9]), ([2], [9, 9]), ([3], [9, 9]), ([1], [2, 1]), ([1, 2, 1], [9, 9])]
    requests = [
        request_of(index, prompt, output, known=index == 3)
        for index, (prompt, output) in enumerate(tokens)
    ]
    policy = make_checkpoint("prompt_end")
    cache = RadixCache(Memory(1, 1, None, 4), 1, policy, make_eviction("lru"))
    assert sum(record.num_hit_tokens for record in replay(requests, cache)) == 1
    surface = lru_surface(requests, CacheRules(1, 1, 1, running_states=1), policy)
    assert surface.token_hit_rate([10**6], [4])[0, 0] == 2 / 8


def saves_all_it_asks_for(requests, hits, policy, page_tokens, outputs):
    """Whether every position asked for at or before a hit had been saved: with a step that depends
    on the prompt's length (sqrt, balanced) there are others, and a cache passes over them."""
    saved = set()
    for request, hit in zip(requests, hits, strict=True):
        tokens = tuple(cached_tokens(request, outputs))
        asked = {tokens[:p] for p in asked_positions(policy, request, page_tokens, outputs)}
        if any(len(key) <= hit for key in asked - saved):
            return False
        saved |= asked
    return True


@settings(max_examples=120, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    traces(grids=(1, 2, 4), min_output=1),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.sampled_from([
        {"name": "every", "tokens": 2}, {"name": "every", "tokens": 3},
        {"name": "every", "tokens": 4}, {"name": "retention", "tokens": 3},
        {"name": "retention", "tokens": 0}, "turn_end", "sqrt", "log",
        {"name": "balanced", "states": 2},
    ]),
)  # fmt: skip
def test_positions_in_output_of_unknown_content_lie_where_the_cache_puts_them(
    requests, page_tokens, outputs, named
):
    """Unlimited memory: whatever was kept is found, so hits tell where states lie."""
    rules = CacheRules(1, 5, page_tokens, outputs=outputs)
    cache = RadixCache(
        Memory(page_tokens, 5, None, None), page_tokens, make_checkpoint(named),
        make_eviction("lru"), cache_outputs=outputs,
    )  # fmt: skip
    hits = [record.num_hit_tokens for record in replay(requests, cache)]
    try:
        curve = lru_curve(requests, rules, make_checkpoint(named))
    except UserError:
        assert named["name"] == "retention"  # it looks at the cache, where it keeps junctions
        return
    assume(saves_all_it_asks_for(requests, hits, make_checkpoint(named), page_tokens, outputs))
    assert curve.hit_tokens([curve.range_bytes[1]])[0] == sum(hits)
    for refresh in ("named", "again"):
        other = lru_curve(requests, rules, make_checkpoint(named), refresh=refresh)
        assert other.hit_tokens([other.range_bytes[1]])[0] == sum(hits)


@settings(max_examples=150)
@given(traces(unique_ends=True), st.sampled_from([0, 2, 6]), st.data())
def test_the_textbook_curve_is_a_cache_that_keeps_everything_again(requests, sigma, data):
    """The same where each request asks for all that was ever asked for on its path."""
    policy = named_so_far(requests)
    longest = max(
        request.num_prompt_tokens + sigma * len(policy.positions_of[request.request_id])
        for request in requests
    )
    capacity = longest + data.draw(st.integers(0, 80))
    prompts = [request_without_output(request) for request in requests]
    rules = CacheRules(1, sigma, outputs=False)
    cache = RadixCache(
        SharedMemory(1, sigma, capacity), 1, policy, make_eviction("lru"), cache_outputs=False
    )
    hits = sum(record.num_hit_tokens for record in replay(prompts, cache))
    curve = lru_curve(prompts, rules, make_checkpoint("prompt_end"), refresh="again")
    assert curve.hit_tokens([capacity])[0] == hits


def request_without_output(request):
    return replace(request, output=Spans.unknown(1))


def test_on_the_conversation_trace_curve_and_replay_are_close(shared_dir):
    """docs/analysis.md quotes the differences; they come from the running state's slot and from
    memory that outputs take in passing, and matter where memory holds few requests."""
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    requests = read_trace(path, "mooncake").requests
    model = get_model("qwen3.5-0.8b")
    rules = CacheRules(model.kv_bytes_per_token, model.state_bytes, 16, running_states=1)
    sizes = [2**30 << power for power in range(8)]
    curve = lru_curve(requests, rules, make_checkpoint("prompt_end")).token_hit_rate(sizes)
    grid = lru_grid(
        requests, rules, lambda: make_checkpoint("prompt_end"), [Capacity(size) for size in sizes]
    ).token_hit_rate()
    assert grid == pytest.approx(curve, abs=0.001)
    assert grid[3:] == pytest.approx(curve[3:], abs=5e-5)  # from 8 GiB on
