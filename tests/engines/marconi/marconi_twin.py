"""Marconi's rules once more, token by token, on tuples: slow, and sharing no code with the engine.

A tree is a dict from prefix (a tuple of tokens) to the time of its last access: exactly those
prefixes that carry a state. Children and parents are found by comparing prefixes.
"""

from dataclasses import dataclass, field

from tests.plain import num_common


def attention(n, d):
    return 8 * n * d * d + 4 * n * n * d


def mlp(n, d):
    return 16 * n * d * d


def ssm(n, d, s):
    return n * (12 * d * d + 16 * d * s + 10 * d)


class Tie(Exception):
    """Two nodes are equally good victims: the order of nodes decides, which is not modelled."""


@dataclass
class Twin:
    """width d, state size s; counts of SSM, attention and MLP layers."""

    capacity: int
    policy: str
    alpha: float
    d: int
    s: int
    num_ssm: int
    num_attention: int
    num_mlp: int
    now: int = 0
    times: dict = field(default_factory=dict)  # in the order in which nodes came

    @property
    def kappa(self):
        return 4 * self.d * self.num_attention

    @property
    def sigma(self):
        return self.num_ssm * (2 * self.d * self.s + 8 * (2 * self.d + 2 * self.s))

    def parent(self, prefix):
        return max((p for p in self.times if len(p) < len(prefix) and prefix[: len(p)] == p),
                   key=len, default=())  # fmt: skip

    def children(self, prefix):
        return [p for p in self.times if self.parent(p) == prefix and p != prefix]

    def held(self):
        tokens = {p[:n] for p in self.times for n in range(1, len(p) + 1)}
        return len(tokens) * self.kappa + len(self.times) * self.sigma

    def match(self, tokens):
        """(longest prefix with KV, deepest prefix with a state), both in tokens."""
        longest = max((num_common(p, tokens) for p in self.times), default=0)
        whole = max((len(p) for p in self.times if tokens[: len(p)] == p), default=0)
        return longest, whole

    def lookup(self, tokens):
        self.now += 1
        longest, whole = self.match(tokens)
        if self.policy == "v1":
            visited = [p for p in self.times if tokens[: len(p)] == p]
            if longest > whole:  # the one child entered in part
                visited += [p for p in self.children(tokens[:whole])
                            if num_common(p, tokens) > whole]  # fmt: skip
        else:
            visited = [tokens[:whole]] if whole else []
        for prefix in visited:
            self.times[prefix] = self.now
        return longest, whole

    def serve(self, prompt, output):
        _, hit = self.lookup(prompt)
        tokens = prompt + output
        self.now += 1
        longest, whole = self.lookup(tokens)
        states = 2 if longest > whole else 1
        missing = (
            self.held() + self.sigma * states + self.kappa * (len(tokens) - longest) - self.capacity
        )
        if missing > 0:
            self.now += 1
            self.evict(missing)
        longest, whole = self.match(tokens)
        for end in (longest, len(tokens)):
            if end and tokens[:end] not in self.times:
                self.times[tokens[:end]] = self.now
        return hit

    def edge(self, prefix):
        return len(prefix) - len(self.parent(prefix))

    def evict(self, missing):
        freed = 0
        while freed < missing and self.times:
            victim = self.oldest_leaf() if self.policy == "v1" else self.lowest_score()
            if self.children(victim):
                freed += self.sigma
                (child,) = self.children(victim)
                self.times[child] = max(self.times[child], self.times[victim])
            else:
                freed += self.sigma + self.kappa * self.edge(victim)
            del self.times[victim]

    def oldest_leaf(self):
        leaves = [p for p in self.times if not self.children(p)]
        return only_lowest([self.times[p] for p in leaves], leaves)

    def lowest_score(self):
        nodes = [p for p in self.times if len(self.children(p)) <= 1]
        recency = spread([1 / (self.now - self.times[p]) for p in nodes])
        gain = spread([self.gain(p) for p in nodes])
        return only_lowest([r + self.alpha * g for r, g in zip(recency, gain, strict=True)], nodes)

    def gain(self, prefix):
        total, above = len(prefix), len(self.parent(prefix))
        flops = (
            self.num_ssm * ssm(total - above, self.d, self.s)
            + self.num_attention * (attention(total, self.d) - attention(above, self.d))
            + self.num_mlp * (mlp(total, self.d) - mlp(above, self.d))
        )
        return flops / (self.sigma + self.kappa * total)


def only_lowest(scores, nodes):
    low = min(scores)
    rows = [row for row, score in enumerate(scores) if score - low < 1e-12]
    if len(rows) > 1:
        raise Tie
    return nodes[rows[0]]


def spread(values):
    low, high = min(values), max(values)
    return [(v - low) / (high - low) if high > low else 1.0 for v in values]
