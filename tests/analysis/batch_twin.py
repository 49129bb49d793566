"""The interval problem of a timed run from its definition: token by token, moment by moment.

As a linear program with a row for every moment at which memory changes hands, and as a search over
everything that could be kept. Nothing here uses the code under test.
"""

from itertools import combinations

from tests.analysis.optimum import _load, _maximise
from tests.analysis.workloads import cached_tokens
from tests.plain import tokens_of


class BatchTwin:
    """A moment is (number of the change, 0 right before it, 1 right after it)."""

    def __init__(self, requests, changes, caps_last_token):
        self.requests, self.changes = requests, changes
        self.paths = [tuple(cached_tokens(request, True)) for request in requests]
        self.prompts = [tuple(tokens_of(request.prompt)) for request in requests]
        self.limits = [
            min(len(prompt), request.num_prompt_tokens - int(caps_last_token))
            for prompt, request in zip(self.prompts, requests, strict=True)
        ]
        self.total = sum(request.num_prompt_tokens for request in requests)
        self.entries = {}  # request -> numbers of the changes by which it enters
        self.exits = {}
        for number, change in enumerate(changes):
            kind = self.entries if change.enters else self.exits
            kind.setdefault(change.request, []).append(number)

    def start(self, request):
        return self.entries[request][0]

    def runs_at(self, request, number):
        """Whether it runs right before the change of that number."""
        entered = sum(at < number for at in self.entries.get(request, []))
        return entered > sum(at < number for at in self.exits.get(request, []))

    def passers(self, prefix, number):
        """Requests that came before and pass the prefix."""
        return [
            u for u, ats in self.entries.items()
            if ats[0] < number and self.paths[u][: len(prefix)] == prefix
        ]  # fmt: skip

    def options(self):
        """(request, position, number of the change since which it was held idle)."""
        for t in self.entries:
            start = self.start(t)
            for p in range(1, self.limits[t] + 1):
                passers = self.passers(self.prompts[t][:p], start)
                if all(
                    self.changes[self.start(u)].step >= self.changes[start].step for u in passers
                ):
                    break
                if any(self.runs_at(u, start) for u in passers):
                    yield t, p, start
                else:
                    yield t, p, max(at for u in passers for at in self.exits[u] if at < start)

    def moments(self):
        """(number, whether right after the change, bytes of KV in tokens, states) held."""
        for number, change in enumerate(self.changes):
            before = [u for u in self.entries if self.runs_at(u, number)]
            if not change.enters and self.exits[change.request][-1] == number:
                yield number, False, self._tokens(before, done=change.request), len(before)
            after = [u for u in self.entries if self.runs_at(u, number + 1)]
            yield number, True, self._tokens(after), len(after)

    def _tokens(self, running, done=None):
        """Different tokens of their prompts; of the one that is done all it has computed."""
        shared, private = set(), 0
        for u in running:
            request = self.requests[u]
            last = request.num_prompt_tokens
            path = self.prompts[u]
            if u == done:
                last += max(request.num_output_tokens - 1, 0)
                path = self.paths[u]
            shared |= {path[:p] for p in range(1, len(path) + 1)}
            private += last - len(path)
        return len(shared) + private


def batch_lp(twin, sigma, capacity, slots=None):
    """Maximum of the linear relaxation; `slots`: states of a pool of their own."""
    options = list(twin.options())
    index = {(t, p): i for i, (t, p, _) in enumerate(options)}
    count = len(options)
    rows = []
    for t in twin.entries:
        rows.append(({i: 1.0 for i, (u, _, _) in enumerate(options) if u == t}, 1.0))
    for t, p, _ in options:
        deeper = {index[t, q]: 1.0 for q in range(p, twin.limits[t] + 1) if (t, q) in index}
        rows.append(({**deeper, count + index[t, p]: -1.0}, 0.0))
    for number, is_after, tokens, states in twin.moments():
        held = [
            i for i, (t, _, since) in enumerate(options)
            if since + (not is_after) <= number < twin.start(t)
        ]  # fmt: skip
        if slots is None:
            rows.append((_load(held, count, 1, sigma), capacity - tokens - sigma * states))
        else:
            rows.append((_load(held, count, 1, 0), capacity - tokens))
            rows.append((_load(held, count, 0, 1), slots - states))
    costs = [float(p) for _, p, _ in options] + [0.0] * count
    return _maximise(costs, rows)


def best_in_batches(twin, sigma, capacity):
    """What the best way to keep things earns: a search over everything that may be kept idle.

    Generous to the running: what they pass is computed as soon as a step has gone by, and kept for
    nothing, states included.
    """
    plans = {frozenset(): 0}
    room = {}
    for number, is_after, tokens, states in twin.moments():
        room[number, is_after] = capacity - tokens - sigma * states
    for number, change in enumerate(twin.changes):
        running = [u for u in twin.entries if twin.runs_at(u, number)]
        after = {}
        for kept, earned in plans.items():
            gain = 0
            if change.enters and twin.start(change.request) == number:
                gain = _deepest(twin, change, running, kept)
            idle = [item for item in kept if not _is_run(twin, running, item)]
            if (number, False) in room and _size(idle, sigma) > room[number, False]:
                continue
            for choice in _kept(twin, change, number, kept, sigma, room[number, True]):
                after[choice] = max(after.get(choice, -1), earned + gain)
        plans = after
    return max(plans.values())


def _deepest(twin, change, running, kept):
    """The deepest position with all KV before it and a state, idle or with somebody who runs."""
    prompt, hit = twin.prompts[change.request], 0
    older = [u for u in running if twin.changes[twin.start(u)].step < change.step]
    for p in range(1, twin.limits[change.request] + 1):
        prefix = prompt[:p]
        is_run = any(twin.paths[u][:p] == prefix for u in older)
        if not is_run and ("kv", prefix) not in kept:
            break
        if is_run or ("state", prefix) in kept:
            hit = p
    return hit


def _kept(twin, change, number, kept, sigma, room):
    """All sets that fit after the change, of what was kept and what a leaver brings."""
    if not change.enters:
        path = twin.paths[change.request]
        kept = kept | {(kind, path[:p]) for p in range(1, len(path) + 1) for kind in _KINDS}
    later = {
        twin.prompts[t][:p]
        for t in twin.entries if twin.start(t) > number
        for p in range(1, twin.limits[t] + 1)
    }  # fmt: skip
    running = [u for u in twin.entries if twin.runs_at(u, number + 1)]
    useful = [item for item in kept if item[1] in later]
    free = {item for item in useful if _is_run(twin, running, item)}
    idle = [item for item in useful if item not in free]
    for count in range(len(idle) + 1):
        for choice in combinations(idle, count):
            if _size(choice, sigma) <= room:
                yield frozenset(choice) | free


def _is_run(twin, running, item):
    return any(twin.paths[u][: len(item[1])] == item[1] for u in running)


_KINDS = ("kv", "state")


def _size(items, sigma):
    return sum(1 if kind == "kv" else sigma for kind, _ in items)
