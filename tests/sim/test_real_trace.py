"""Timed mode on the start of a real trace."""

from dataclasses import replace
from pathlib import Path

import pytest

from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.policies.checkpoint.fixed import PromptEnd
from hybridsim.policies.eviction.lru import LRU
from hybridsim.records import RequestRecord
from hybridsim.request import Request
from hybridsim.sim.engine import simulate
from hybridsim.sim.options import SchedulerOptions
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace
from tests.sim.workloads import FREE, AffineCost

PAGE_TOKENS = 16


@pytest.fixture(scope="module")
def conversation(shared_dir: Path) -> list[Request]:
    path = shared_dir / "traces" / "mooncake_conversation.jsonl"
    return read_trace(str(path), "mooncake", first=400).requests


def cache(num_tokens: int) -> RadixCache:
    memory = Memory(PAGE_TOKENS, 64, num_tokens // PAGE_TOKENS, 100)
    return RadixCache(memory, PAGE_TOKENS, PromptEnd(), LRU())


@pytest.mark.parametrize("num_tokens", [200_000, 1_000_000, 10_000_000])
def test_infinite_speed_and_one_request_at_a_time_equal_replay(
    conversation: list[Request], num_tokens: int
) -> None:
    timed = simulate(conversation, cache(num_tokens), FREE, arrivals="serial")
    for record in timed.records:
        record.arrival_s = record.scheduled_s = record.first_token_s = record.finished_s = None
    assert timed.records == replay(conversation, cache(num_tokens))


def test_a_crowded_server_leaps_as_it_steps(conversation: list[Request]) -> None:
    # Memory for about six requests of 12,000 tokens, and ten arrivals a second: they queue, are
    # preempted, and evict each other's prefixes.
    requests = [
        replace(item, output=item.output, arrival_s=0.1 * index)
        for index, item in enumerate(conversation[:120])
    ]
    cost = AffineCost(0.004, 2e-5, 1e-9, 1e-12)
    runs = [
        simulate(requests, cache(150_000), cost, SchedulerOptions(max_num_seqs=16), leap=leap)
        for leap in (True, False)
    ]
    leaping, stepping = runs
    assert sum(record.num_preemptions for record in leaping.records) > 0
    assert sum(record.num_evicted_tokens for record in leaping.records) > 0
    assert len(leaping.steps) < len(stepping.steps) / 3
    for one, other in zip(leaping.records, stepping.records, strict=True):
        assert_close(one, other)


def assert_close(one: RequestRecord, other: RequestRecord) -> None:
    for name in RequestRecord.__slots__:
        ours, theirs = getattr(one, name), getattr(other, name)
        is_time = name.endswith("_s") and ours is not None
        assert ours == (pytest.approx(theirs, rel=1e-9, abs=0) if is_time else theirs), name
