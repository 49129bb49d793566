"""Seeded workloads keep what they promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridsim.traces import read_trace
from hybridsim.traces.draws import Lengths, Popularity
from hybridsim.traces.generators import GENERATORS
from hybridsim.trie import build_trie

SMALL = {
    "chat": {"num_sessions": 12},
    "shared_prefix": {"num_requests": 60},
    "coding_agent": {"num_sessions": 5},
    "few_shot": {"num_requests": 60},
}


def generate(name: str, seed: int = 0, **knobs: object) -> list:
    options = {"generator": name, **SMALL[name], **knobs}
    return read_trace(None, "generate", options=options, seed=seed).requests


@pytest.mark.parametrize("name", GENERATORS)
@given(seed=st.integers(0, 2**31))
@settings(max_examples=8)
def test_generators_keep_their_promises(name: str, seed: int) -> None:
    requests = generate(name, seed)
    arrivals = [r.arrival_s for r in requests]
    assert arrivals == sorted(arrivals)
    match = build_trie(requests, outputs=True).match_tokens
    for index, request in enumerate(requests):
        assert request.prompt.num_known_tokens == request.num_prompt_tokens > 0
        assert request.output.num_known_tokens == request.num_output_tokens > 0
        assert match[index] < request.num_prompt_tokens  # something is always new
        if request.previous is not None:
            before = requests[request.previous]
            assert before.session_id == request.session_id
            # Sent after the answer to the turn before, at the assumed speed of decoding.
            gap_s = 0.02 * before.num_output_tokens + request.delay_s
            assert request.arrival_s - before.arrival_s == pytest.approx(gap_s)


@pytest.mark.parametrize("name", GENERATORS)
def test_seeds_decide_all(name: str) -> None:
    one, same, other = (generate(name, seed) for seed in (1, 1, 2))
    lengths = [[r.num_prompt_tokens for r in requests] for requests in (one, same, other)]
    assert lengths[0] == lengths[1] != lengths[2]
    assert [r.arrival_s for r in one] == [r.arrival_s for r in same]
    # Another pace changes when things happen, not what.
    slow = generate(name, 1, arrivals={"process": "poisson", "rate_per_s": 0.01})
    assert sorted(r.num_prompt_tokens for r in slow) == sorted(lengths[0])


def test_chat_turns_contain_the_turn_before() -> None:
    requests = generate("chat", context_limit=4000)
    match = build_trie(requests, outputs=True).match_tokens
    followers = [(i, r) for i, r in enumerate(requests) if r.previous is not None]
    assert followers
    for index, request in followers:
        before = requests[request.previous]
        assert match[index] == before.num_prompt_tokens + before.num_output_tokens
        assert request.num_prompt_tokens + request.num_output_tokens <= 4000


def test_coding_agents_compact_at_the_limit() -> None:
    requests = generate("coding_agent", num_sessions=8, context_limit=30_000)
    match = build_trie(requests, outputs=True).match_tokens
    broken = kept = 0
    for index, request in enumerate(requests):
        if request.previous is None:
            continue
        before = requests[request.previous]
        whole = before.num_prompt_tokens + before.num_output_tokens
        num_added = int(np.diff(request.prompt.ends)[-1]) + request.num_output_tokens
        if whole + num_added > 30_000:  # back to the tools and system prompt, and a summary
            assert match[index] == request.prompt.ends[0]
            assert len(request.prompt) == 3
            broken += 1
        else:
            assert match[index] == whole
            kept += 1
    assert broken > 0
    assert kept > broken


def test_shared_prefixes_follow_zipf() -> None:
    requests = generate("shared_prefix", num_requests=4000, num_prefixes=4, zipf=1.0)
    ids = np.array([int(r.prompt.ids[0]) for r in requests])
    counts = sorted((np.count_nonzero(ids == i) for i in set(ids.tolist())), reverse=True)
    # 1, 1/2, 1/3, 1/4 over their sum 25/12; binomial standard error of the first is 0.0079
    for count, share in zip(counts, [12 / 25, 6 / 25, 4 / 25, 3 / 25], strict=True):
        assert abs(count / 4000 - share) < 4 * 0.0079


def test_few_shot_prompts_part_at_examples() -> None:
    requests = generate("few_shot", num_requests=200, num_tasks=3, min_shots=1, max_shots=4)
    match = build_trie(requests).match_tokens
    for request, found in zip(requests, match.tolist(), strict=True):
        assert 3 <= len(request.prompt) <= 6
        assert found in [0, *request.prompt.ends.tolist()]


def test_lengths_have_the_mean_they_say() -> None:
    rng = np.random.default_rng(1)
    drawn = [Lengths(mean=500, sigma=0.8).draw(rng) for _ in range(20_000)]
    # cv of a lognormal: sqrt(exp(sigma^2) - 1) = 0.947; standard error 500 * 0.947 / 141 = 3.35
    assert abs(np.mean(drawn) - 500) < 4 * 3.35
    assert {Lengths(mean=7).draw(rng) for _ in range(20)} == {7}
    assert max(Lengths(mean=500, sigma=2, max=600).draw(rng) for _ in range(200)) == 600
    assert Popularity(1, 3.0).draw(rng) == 0
