"""The plain way to find a victim: every candidate is looked at anew for each, by the policy's rule.

It stands in front of the cache's own search, lets that one decide, and holds both equal. Nothing is
remembered but the order in which objects became candidates, which decides between equal scores.
"""

from math import floor, log2

from hybridsim.cache.victims import is_kv_candidate, is_state_candidate
from hybridsim.policies.base import RankingPolicy
from hybridsim.policies.eviction.flop_aware import FlopAware
from hybridsim.policies.eviction.lhd import LHD, NUM_AGES
from hybridsim.policies.eviction.s3fifo import S3FIFO
from hybridsim.policies.eviction.seglen import SegLen


def gap_tokens(node):
    """Tokens behind the nearest state above, by walking up to it."""
    above = node.parent
    while above.parent is not None and not above.has_state:
        above = above.parent
    return node.end - above.end


def spread(values):
    low, high = min(values, default=0), max(values, default=0)
    return [(x - low) / (high - low) if high > low else 1.0 for x in values]


def last_uses(kv, states):
    return [x.kv_access for x in kv] + [x.state_access for x in states]


def seglen_scores(policy, kv, states, now):
    replays = spread([gap_tokens(x) for x in (*kv, *states)])
    uses = spread(last_uses(kv, states))
    return [use + policy.weight * replay for use, replay in zip(uses, replays, strict=True)]


def flop_aware_scores(policy, kv, states, now):
    setting = policy._setting
    savings = [
        setting.prefill_flops(x.num_tokens, x.start) / (x.num_tokens * setting.kv_bytes_per_token)
        for x in kv
    ]
    for x in states:
        gap = gap_tokens(x)
        savings.append(setting.prefill_flops(gap, x.end - gap) / setting.state_bytes)
    recency = spread([1 / (now - use + 1) for use in last_uses(kv, states)])
    savings = spread(savings)
    return [r + policy.alpha * s for r, s in zip(recency, savings, strict=True)]


def lhd_scores(policy, kv, states, now):
    setting = policy._setting
    objects = [(*x.kv_note, x.num_tokens * setting.kv_bytes_per_token) for x in kv]
    objects += [(*x.state_note, max(setting.state_bytes, 1)) for x in states]
    bins = [min(floor(4 * log2(now - used + 1)), NUM_AGES - 1) for _, used, _ in objects]
    return [
        float(policy._densities[row, age]) / size
        for (row, _, size), age in zip(objects, bins, strict=True)
    ]


def s3fifo_scores(policy, kv, states, now):
    """On copies of the notes: (is it in the main queue, its place there, uses)."""
    per_token, state_bytes = policy._setting.kv_bytes_per_token, policy._setting.state_bytes
    notes = [x.kv_note for x in kv] + [x.state_note for x in states]
    sizes = [x.num_tokens * per_token for x in kv] + [state_bytes for _ in states]
    last = policy._entries
    while notes:
        queues = {is_main: [i for i, n in enumerate(notes) if n[0] == is_main]
                  for is_main in (False, True)}  # fmt: skip
        small_bytes = sum(sizes[i] for i in queues[False])
        is_crowded = small_bytes > policy.small_share * sum(sizes)
        is_main = not queues[False] or not (is_crowded or not queues[True])
        first = min(queues[is_main], key=lambda i: notes[i][1])
        uses = notes[first][2]
        if uses <= (0 if is_main else 1):
            return [0 if i == first else 1 for i in range(len(notes))]
        last += 1
        notes[first] = (True, last, uses - 1 if is_main else 0)
    return []


SCORES = {
    SegLen: seglen_scores,
    FlopAware: flop_aware_scores,
    LHD: lhd_scores,
    S3FIFO: s3fifo_scores,
}


class PlainScan:
    """Implements hybridsim.cache.victims.Victims around another one."""

    def __init__(self, residents):
        self.residents, self.policy = residents, residents.eviction
        self.inner = residents._victims
        self.order = {True: {}, False: {}}  # is it KV -> candidates in order
        self.num_victims = 0

    def add_kv(self, node):
        self.order[True][node] = None
        self.inner.add_kv(node)

    def add_state(self, node):
        self.order[False][node] = None
        self.inner.add_state(node)

    def changed(self, node):
        self.inner.changed(node)

    def is_right(self, node):
        return self.inner.is_right(node)

    def next(self, kv_helps, state_helps, now):
        for is_kv, is_candidate in ((True, is_kv_candidate), (False, is_state_candidate)):
            self.order[is_kv] = {x: None for x in self.order[is_kv] if is_candidate(x)}
            in_tree = {x for x in self.residents.tree.nodes() if is_candidate(x)}
            assert set(self.order[is_kv]) == in_tree
        kv = list(self.order[True]) if kv_helps else []
        states = list(self.order[False]) if state_helps else []
        if isinstance(self.policy, RankingPolicy):
            found = self.inner.next(kv_helps, state_helps, now)
            self._check_rank(found, kv, states)
        else:
            expected = self._lowest(SCORES[type(self.policy)](self.policy, kv, states, now), kv,
                                    states)  # fmt: skip
            found = self.inner.next(kv_helps, state_helps, now)
            assert (found.node, found.is_kv) == expected
        self.num_victims += 1
        return found

    def _check_rank(self, found, kv, states):
        """Of equal priorities any may go: where a policy gives such, order means nothing to it."""
        priorities = [self.policy.kv_priority(x) for x in kv]
        priorities += [self.policy.state_priority(x) for x in states]
        assert found.priority == min(priorities)
        ask = self.policy.kv_priority if found.is_kv else self.policy.state_priority
        assert found.node in (kv if found.is_kv else states)
        assert ask(found.node) == found.priority

    @staticmethod
    def _lowest(scores, kv, states):
        """The first of the lowest scores, states before KV."""
        order = [*range(len(kv), len(scores)), *range(len(kv))]
        row = min(order, key=lambda i: scores[i])
        return ((kv + states)[row], row < len(kv))
