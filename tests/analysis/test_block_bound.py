"""The bound in blocks against a search over all policies, Belady's rule and block LRU."""

from itertools import combinations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hybridsim.analysis.blocks import block_problem
from hybridsim.analysis.bound import bracket
from hybridsim.cache.block_belady import BlockBelady
from hybridsim.cache.block_cache import BlockLRU
from hybridsim.request import Request, Spans


@st.composite
def block_traces(draw, max_requests=9, max_blocks=4, sizes=(1, 2, 5)):
    """Prompts of few contents; a block's size depends on its content and its place."""
    requests = []
    for index in range(draw(st.integers(1, max_requests))):
        contents = draw(st.lists(st.integers(0, 2), min_size=1, max_size=max_blocks))
        spans = [(c, sizes[(c + depth) % len(sizes)]) for depth, c in enumerate(contents)]
        if draw(st.booleans()):  # a partial last block
            spans[-1] = (spans[-1][0], 1)
        requests.append(Request(str(index), Spans.of(spans), Spans.unknown(1)))
    return requests


def best_policy(requests, num_blocks):
    """Tokens that the best of all policies hits: a search over all sets that it may keep."""
    paths = [
        [tuple(zip(r.prompt.ids.tolist(), r.prompt.ends.tolist(), strict=True))[: depth + 1]
         for depth in range(len(r.prompt))]
        for r in requests
    ]  # fmt: skip
    plans = {frozenset(): 0}
    for index, path in enumerate(paths):
        later = {block for other in paths[index + 1 :] for block in other}
        after = {}
        for kept, earned in plans.items():
            hit = 0
            for block in path:
                if block not in kept:
                    break
                hit = block[-1][1]  # the block's end in tokens
            alive = sorted((kept | set(path)) & later)
            for choice in combinations(alive, min(num_blocks, len(alive))):
                chosen = frozenset(choice)
                after[chosen] = max(after.get(chosen, -1), earned + hit)
        plans = after
    return max(plans.values())


@settings(max_examples=150)
@given(block_traces(), st.integers(1, 8))
def test_the_best_of_all_policies_lies_in_the_bracket(requests, num_blocks):
    problem = block_problem(requests)
    found = bracket(problem, num_blocks, num_steps=200)
    best = best_policy(requests, num_blocks)
    assert found.lower * problem.total_reward - 1e-6 <= best
    assert best <= found.upper * problem.total_reward + 1e-6


@given(block_traces(max_requests=14), st.integers(1, 12), st.integers(0, 3))
def test_neither_block_lru_nor_belady_beats_it(requests, num_blocks, num_warmup):
    problem = block_problem(requests, num_warmup=num_warmup)
    upper = bracket(problem, num_blocks, num_steps=60).upper * problem.total_reward
    for cache in (BlockLRU(num_blocks), BlockBelady(requests, num_blocks)):
        hits = [cache.serve(request).num_hit_tokens for request in requests]
        assert sum(hits[num_warmup:]) <= upper + 1e-6


@given(block_traces(sizes=(3,), max_requests=14), st.integers(1, 12))
def test_beladys_rule_reaches_it_where_blocks_are_equal(requests, num_blocks):
    requests = [r for r in requests if r.prompt.num_tokens % 3 == 0]
    cache = BlockBelady(requests, num_blocks)
    hits = sum(cache.serve(request).num_hit_tokens for request in requests)
    problem = block_problem(requests)
    upper = bracket(problem, num_blocks, num_steps=1500).upper * problem.total_reward
    assert hits - 1e-6 <= upper <= hits * 1.02 + 0.3


def test_a_large_block_needed_later_is_worth_more_than_a_small_one_needed_now():
    """One block fits. A is of 1 token and comes back first, B of 5 comes back last: keep B."""
    requests = [
        Request(name, Spans.of([(content, size)]), Spans.unknown(1))
        for name, content, size in (("a", 1, 1), ("b", 2, 5), ("a2", 1, 1), ("b2", 2, 5))
    ]
    problem = block_problem(requests)
    found = bracket(problem, 1)
    assert found.upper * problem.total_reward == pytest.approx(5, abs=0.05)
    assert found.lower * problem.total_reward == pytest.approx(5)
    cache = BlockBelady(requests, 1)
    assert sum(cache.serve(request).num_hit_tokens for request in requests) == 1
