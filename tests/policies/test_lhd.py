"""Hit density: by its definition, and what it learns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workbench import ask, make_cache

from hybridsim.policies.eviction.lhd import _EDGES, _MIDDLES, NUM_AGES, hit_density
from hybridsim.sim.replay import replay


@given(st.lists(st.tuples(st.integers(0, NUM_AGES - 1), st.integers(0, 9), st.integers(0, 9)),
                min_size=1, max_size=10))  # fmt: skip
def test_hit_density_by_its_definition(events):
    hits, evictions = np.zeros(NUM_AGES), np.zeros(NUM_AGES)
    for age, num_hits, num_evictions in events:
        hits[age] += num_hits
        evictions[age] += num_evictions
    density = hit_density(hits, evictions)
    for age in range(NUM_AGES):
        later = range(age, NUM_AGES)
        lived = sum((hits[b] + evictions[b]) * (_MIDDLES[b] - _EDGES[age]) for b in later)
        expected = sum(hits[b] for b in later) / lived if lived > 0 else 0.0
        assert density[age] == pytest.approx(expected)


def test_lhd_learns_that_the_reused_class_is_worth_keeping():
    # In 20 rounds x is used again after each y, and no y ever. Then two ys come between, of which
    # LRU keeps the last and lets x go: 4 pages hold two of them.
    texts = [text for n in range(20) for text in ("xx", chr(1000 + n) * 2)]
    texts += [text for n in range(20) for text in ("xx", chr(2000 + n) * 2, chr(3000 + n) * 2)]
    requests = [ask(text) for text in texts]
    hits = []
    for eviction in ({"name": "lhd", "events": 10}, "lru"):
        cache = make_cache(requests, "none", eviction, pages=4, slots=0, state_bytes=0,
                           compute_last_token=False)  # fmt: skip
        hits.append(sum(r.num_hit_tokens for r in replay(requests, cache)[43:]))
    # 19 rounds of 2 tokens follow that of the change; one may be lost to the new, longer age.
    assert hits[0] >= 36
    assert hits[1] == 0
