"""The interval problem from its definition, token by token: as an LP for HiGHS, as a search over
all policies, and as Belady's rule. Nothing here uses the code under test."""

from itertools import combinations

import highspy
import numpy as np

from tests.analysis.workloads import cached_tokens
from tests.plain import tokens_of


class TokenProblem:
    """For each request the positions at which it may resume and who passed each token last."""

    def __init__(self, requests, caps_last_token, outputs=True):
        self.paths = [tuple(cached_tokens(request, outputs)) for request in requests]
        self.prompts = [tuple(tokens_of(request.prompt)) for request in requests]
        self.limits = [
            min(len(prompt), request.num_prompt_tokens - int(caps_last_token))
            for prompt, request in zip(self.prompts, requests, strict=True)
        ]
        self.own = [
            request.num_prompt_tokens + max(request.num_output_tokens - 1, 0)
            for request in requests
        ]
        self.total = sum(request.num_prompt_tokens for request in requests)

    def last_pass(self, request, position):
        prefix = self.prompts[request][:position]
        for earlier in reversed(range(request)):
            if self.paths[earlier][:position] == prefix:
                return earlier
        return None

    def options(self):
        """(request, position, last pass) of all positions that may be resumed at."""
        for request, limit in enumerate(self.limits):
            for position in range(1, limit + 1):
                last = self.last_pass(request, position)
                if last is None:
                    break
                yield request, position, last


def lp_optimum(
    problem, kv, sigma, capacity, *, forced, slots=None, states_apart=False, reward=lambda p: p,
    window=None,
):  # fmt: skip
    """Maximum of the linear relaxation; `slots`: capacity in states of a pool of their own.

    states_apart: a running request's state is in neither pool. window: instead of a state each hit
    holds so many tokens before it, each since its own last pass.
    """
    options = list(problem.options())
    index = {(t, p): i for i, (t, p, _) in enumerate(options)}
    count = len(options)
    rows = []  # (coefficients, upper bound): sum <= upper bound
    for t in range(len(problem.own)):
        mine = [i for i, (u, _, _) in enumerate(options) if u == t]
        rows.append(({i: 1.0 for i in mine}, 1.0))
    for t, p, _ in options:  # y_p + y_{p+1} + ... - x_p <= 0
        deeper = {index[t, q]: 1.0 for q in range(p, problem.limits[t] + 1) if (t, q) in index}
        rows.append(({**deeper, count + index[t, p]: -1.0}, 0.0))
    pools = [(kv, sigma, capacity)] if slots is None else [(kv, 0, capacity), (0, sigma, slots)]
    for kv_size, state_size, room in pools:
        for s in range(len(problem.own)):
            held = [i for i, (t, _, a) in enumerate(options) if a <= s < t]
            if window and not kv_size:
                rows.append((_windows(options, s, window), room))
                continue
            rows.append((_load(held, count, kv_size, state_size), room))
            own = [k * problem.own[s] + (0 if states_apart else z) for k, z, _ in pools]
            fits = all(o <= r for o, (_, _, r) in zip(own, pools, strict=True))
            if forced and fits:
                spans = [i for i, (t, _, a) in enumerate(options) if a < s < t]
                own_size = kv_size * problem.own[s] + (0 if states_apart else state_size)
                rows.append((_load(spans, count, kv_size, state_size), room - own_size))
    costs = [float(reward(p)) for _, p, _ in options] + [0.0] * count
    return _maximise(costs, rows)


def _windows(options, s, window):
    """For each option the tokens of its window that are held in interlude s."""
    last_of = {(t, p): last for t, p, last in options}
    return {
        i: float(sum(last_of[t, q] <= s < t for q in range(max(p - window, 0) + 1, p + 1)))
        for i, (t, p, _) in enumerate(options)
    }


def _load(held, count, kv_size, state_size):
    load = {i: float(state_size) for i in held if state_size}
    return load | {count + i: float(kv_size) for i in held if kv_size}


def _maximise(costs, rows):
    if not costs:
        return 0.0
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    for _ in costs:
        solver.addVar(0.0, 1.0)
    solver.changeColsCost(len(costs), np.arange(len(costs), dtype=np.int32), np.array(costs))
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    for coefficients, limit in rows:
        keys = np.array(list(coefficients), dtype=np.int32)
        values = np.array(list(coefficients.values()))
        solver.addRow(-highspy.kHighsInf, float(limit), len(keys), keys, values)
    solver.run()
    return solver.getInfo().objective_function_value


def best_policy(problem, kv, sigma, capacity, *, forced):
    """What the best of all policies earns in a shared pool: a search over everything to hold.

    A request may use any position whose state and KV are held, computes everything behind it, and
    then any part of what was held and what it made is held on, as far as it fits.
    """
    wanted = {prompt[:p] for prompt, limit in zip(problem.prompts, problem.limits, strict=True)
              for p in range(1, limit + 1)}  # fmt: skip
    plans = {frozenset(): 0}
    for t, (path, prompt) in enumerate(zip(problem.paths, problem.prompts, strict=True)):
        own = kv * problem.own[t] + sigma
        after = {}
        for held, earned in plans.items():
            for hit in _hits(held, prompt, problem.limits[t]):
                made = {("kv", path[:p]) for p in range(1, len(path) + 1)}
                made |= {("state", path[:p]) for p in range(hit + 1, len(path) + 1)}
                future = _future(wanted, problem, t)
                made = {item for item in made if item[1] in future}
                kept = {item for item in held if item[1] in future}
                for choice in _choices(kept, made, path, kv, sigma, capacity, own, forced):
                    after[choice] = max(after.get(choice, -1), earned + hit)
        plans = after
    return max(plans.values())


def _hits(held, prompt, limit):
    yield 0
    for p in range(1, limit + 1):
        if ("kv", prompt[:p]) not in held:
            return
        if ("state", prompt[:p]) in held:
            yield p


def _future(wanted, problem, now):
    later = set()
    for prompt, limit in zip(problem.prompts[now + 1 :], problem.limits[now + 1 :], strict=True):
        later |= {prompt[:p] for p in range(1, limit + 1)}
    return wanted & later


def _choices(kept, made, path, kv, sigma, capacity, own, forced):
    """All largest sets that fit between this request and the next (and around this one)."""
    items = sorted(kept | made, key=lambda item: (item[0], item[1]))
    size = {item: kv if item[0] == "kv" else sigma for item in items}
    spans = {item for item in items if path[: len(item[1])] != item[1]}
    room = capacity - own if forced and own <= capacity else capacity
    found = []
    for count in reversed(range(len(items) + 1)):
        for choice in combinations(items, count):
            chosen = set(choice)
            if sum(size[i] for i in choice) > capacity:
                continue
            if forced and sum(size[i] for i in chosen & spans) > room:
                continue
            if not any(chosen <= other for other in found):
                found.append(chosen)
    return [frozenset(choice) for choice in found]


def belady(problem, capacity):
    """Hits of Belady's rule on single tokens, bypass allowed: farthest next use goes first."""
    held, hits = set(), 0
    for t, (path, prompt) in enumerate(zip(problem.paths, problem.prompts, strict=True)):
        for p in range(1, problem.limits[t] + 1):
            if prompt[:p] not in held:
                break
            hits += 1
        held |= {path[:p] for p in range(1, len(path) + 1)}
        uses = {item: _next_use(problem, item, t) for item in held}
        alive = [item for item in held if uses[item] is not None]
        held = set(sorted(alive, key=lambda item: (uses[item], len(item)))[:capacity])
    return hits


def _next_use(problem, item, now):
    """The next request to pass the token; None where it computes it anyway, so makes it anew."""
    for later in range(now + 1, len(problem.prompts)):
        if problem.paths[later][: len(item)] == item:
            return later if len(item) <= problem.limits[later] else None
    return None
