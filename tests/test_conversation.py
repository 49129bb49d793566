"""The Mooncake conversation trace: numbers that two independent programs agree on."""

import pytest

from hybridsim.cache.block_cache import BlockLRU
from hybridsim.cache.pools import Memory
from hybridsim.cache.radix_cache import RadixCache
from hybridsim.metrics import summarise
from hybridsim.models import get_model
from hybridsim.policies import make_checkpoint, make_eviction
from hybridsim.sim.replay import replay
from hybridsim.traces import read_trace
from hybridsim.trie import build_trie

# Block LRU, second half of the trace: ../shared/spec/policies-and-bounds.md, section 5
BLOCK_LRU = {
    1024: 0.04704,
    2048: 0.05644,
    4096: 0.08739,
    8192: 0.18820,
    16384: 0.27889,
    32768: 0.35575,
    65536: 0.38365,
}


@pytest.fixture(scope="module")
def requests(shared_dir):
    return read_trace(shared_dir / "traces" / "mooncake_conversation.jsonl", "mooncake").requests


def rates(records, warmup=0.0):
    return summarise(records, warmup=warmup)


@pytest.mark.parametrize(("num_blocks", "expected"), BLOCK_LRU.items())
def test_block_lru_gives_the_published_points(requests, num_blocks, expected):
    cache = BlockLRU(num_blocks)
    records = [cache.serve(request) for request in requests]
    cache.check()
    assert rates(records, 0.5)["token_hit_rate"] == pytest.approx(expected, abs=5e-6)


@pytest.mark.parametrize("compute_last_token", [False, True])
def test_unlimited_attention_only_memory_reaches_the_ideal(requests, compute_last_token):
    """Token by token: page size 1, without and with the cap at n - 1 tokens."""
    cache = RadixCache(
        Memory(1, 0, None, None),
        1,
        make_checkpoint("none"),
        make_eviction("lru"),
        compute_last_token=compute_last_token,
    )
    trie = build_trie(requests)
    records = replay(requests, cache, trie.match_tokens)
    for request, record, ideal in zip(requests, records, trie.match_tokens, strict=True):
        cap = request.num_prompt_tokens - (1 if compute_last_token else 0)
        assert record.num_hit_tokens == min(int(ideal), cap)
    if not compute_last_token:
        # 37.36 % of tokens: ../shared/traces/README.md
        assert rates(records)["token_hit_rate"] == pytest.approx(0.3736, abs=5e-5)


def test_hybrid_stays_below_attention_only_at_equal_kv(requests):
    model = get_model("qwen3.5-0.8b")
    page_bytes = 16 * model.kv_bytes_per_token
    num_pages = 8 * 2**30 // page_bytes
    policy, eviction = make_checkpoint("prompt_end"), make_eviction("lru")
    some = requests[:4000]
    hybrid = replay(
        some,
        RadixCache(Memory(page_bytes, model.state_bytes, num_pages, 200), 16, policy, eviction),
    )
    attention = replay(some, RadixCache(Memory(page_bytes, 0, num_pages, 0), 16, policy, eviction))
    assert all(
        h.num_match_tokens == a.num_match_tokens for h, a in zip(hybrid, attention, strict=True)
    )
    assert all(h.num_hit_tokens <= a.num_hit_tokens for h, a in zip(hybrid, attention, strict=True))
    assert 0 < rates(hybrid)["token_hit_rate"] < rates(attention)["token_hit_rate"]
